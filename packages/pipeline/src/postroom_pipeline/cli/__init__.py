"""The command ``postroom-pipeline``. Spark is imported only by the commands that run it, and only when they do."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

import click

from ..errors import EXIT_FAILED, EXIT_INTERRUPTED, PipelineError, one_line
from .damage import advice
from .lake import mirror
from .local import bundle, validate
from .setup import doctor, package
from .tables import compact, follow, ingest, report

EPILOG: Final = (
    "Exit status: 0 success, 1 failure, 2 wrong usage, 3 the environment is not fit or the tables are in use (see"
    " doctor), 130 interrupted."
)
#: Modules whose errors are reported in one line: Spark's own text is pages long.
_SPARK_MODULES: Final = ("py4j", "pyspark")
_DEBUG: Final = "POSTROOM_DEBUG"


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a log record is not from py4j, which logs where a call was interrupted; the error is enough."""
    return "py4j" not in record.pathname


class Commands(click.Group):
    """A group whose commands end with one line and an exit status, whatever error they raise."""

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get(_DEBUG):
            return super().invoke(ctx)
        logging.getLogger("py4j").propagate = False
        logging.getLogger().addFilter(_is_ours)  # py4j logs through the root logger as well
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            self._end(ctx, str(error), error.exit_status)
        except KeyboardInterrupt:
            self._end(ctx, "interrupted", EXIT_INTERRUPTED)
        except BrokenPipeError:  # nobody reads the output any more: click exits silently
            raise
        except OSError as error:
            text = ": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error))))
            self._end(ctx, text, EXIT_FAILED)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _SPARK_MODULES:
                raise
            said = one_line(error)
            said = advice(said) or f"Spark: {said}"
            self._end(ctx, f"{said} ({_DEBUG}=1 shows the full error)", EXIT_FAILED)

    def _end(self, ctx: click.Context, text: str, status: int) -> None:
        click.echo(f"postroom-pipeline: {text}", err=True)
        ctx.exit(status)


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="postroom-pipeline", prog_name="postroom-pipeline")
def main() -> None:
    """Turn the snapshots of many devices into tables and reports with Spark: here, or on a cluster by spark-submit."""


for command in (bundle, compact, doctor, follow, ingest, mirror, package, report, validate):
    main.add_command(command)
