"""The command ``postroom-pipeline``. Spark is imported only by the commands that run it, and only when they do."""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from .bundling.command import bundle
from .compacting.command import compact
from .doctor import CHECKS, Wanted, examine
from .errors import (
    EXIT_ENVIRONMENT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    PipelineError,
    UsageError,
    said_by,
)
from .findings import Verdict
from .following.command import follow
from .options import reports_option, spark_options
from .package import write_package
from .pages.command import report

EPILOG: Final = (
    "Exit status: 0 done, 1 failed, 2 usage, 3 something that it needs is missing or occupied (see doctor),"
    " 130 interrupted."
)
#: Modules whose errors are told in one line: what Spark says goes on for pages.
_SPARK_MODULES: Final = ("py4j", "pyspark")
_DEBUG: Final = "POSTROOM_DEBUG"


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether it is not of what calls Java, which shows where it was interrupted; the error is told without it."""
    return "py4j" not in record.pathname


class Commands(click.Group):
    """A group whose commands end with one line and an exit status, whatever goes wrong in them."""

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get(_DEBUG):
            return super().invoke(ctx)
        logging.getLogger("py4j").propagate = False
        logging.getLogger().addFilter(_is_ours)  # it uses this one as well
        try:
            return super().invoke(ctx)
        except PipelineError as error:
            self._end(ctx, str(error), error.exit_status)
        except KeyboardInterrupt:
            self._end(ctx, "interrupted", EXIT_INTERRUPTED)
        except BrokenPipeError:  # nobody reads the output any more: click ends for that without a word
            raise
        except OSError as error:
            told = ": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error))))
            self._end(ctx, told, EXIT_FAILED)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _SPARK_MODULES:
                raise
            self._end(ctx, f"Spark: {said_by(error)} ({_DEBUG}=1 shows all of it)", EXIT_FAILED)

    def _end(self, ctx: click.Context, text: str, status: int) -> None:
        click.echo(f"postroom-pipeline: {text}", err=True)
        ctx.exit(status)


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="postroom-pipeline", prog_name="postroom-pipeline")
def main() -> None:
    """Turn the snapshots of many devices into tables and reports, with Spark: here, or on a cluster by spark-submit."""


@main.command()
@click.option("--in", "landing", default="", metavar="DIR", help="The directory of the snapshots, to be looked at too.")
@click.option("--out", "tables", default="", metavar="DIR", help="The place of the tables, to be tried too.")
@click.option("--only", multiple=True, type=click.Choice(CHECKS), help="Look at this alone; can be given again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each finding.")
@spark_options
def doctor(landing: str, tables: str, only: tuple[str, ...], as_json: bool, given: dict[str, str]) -> None:
    """Look at everything that a run needs, and say what to mend.

    Ends with 3 where something is missing; a warning alone is no failure.
    """
    for name, value in (("in", landing), ("out", tables)):
        if name in only and not value:
            raise UsageError(f"--only {name} needs --{name} DIR")
    is_fit = True
    for finding in examine(Wanted(landing, tables, given), only):
        is_fit = is_fit and finding.verdict is not Verdict.BAD
        if as_json:
            click.echo(json.dumps(asdict(finding)))
        else:
            click.echo(f"{finding.verdict:<4}  {finding.check:<9}  {finding.seen}")
            if finding.mend:
                click.echo(f"      {'':<9}  -> {finding.mend}")
    sys.exit(0 if is_fit else EXIT_ENVIRONMENT)


@main.command()
@click.option(
    "--out",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write the two files.",
)
def package(directory: Path) -> None:
    """Write postroom_pipeline.zip and run.py, for spark-submit."""
    archive, entry = write_package(directory)
    click.echo(f"spark-submit --master MASTER --py-files {archive} {entry} COMMAND ...")


@main.command()
@click.option(
    "--in", "landing", required=True, metavar="DIR", help="The directory of the snapshots, with those below it."
)
@click.option("--out", "tables", required=True, metavar="DIR", help="The place of the tables.")
@reports_option
@spark_options
def ingest(landing: str, tables: str, no_reports: bool, given: dict[str, str]) -> None:
    """Take in the snapshots of a directory that are new by what they hold, and build tables and reports.

    Repeating it changes nothing, in any order, under any names. What is refused has a row in the table rejects, and
    does not fail the run.
    """
    from .ingest.job import ingest as take_in
    from .io import Warehouse
    from .progress import Progress
    from .runlog import logged_run
    from .small import is_small
    from .spark import session

    with session("postroom-pipeline ingest", given, small=is_small(landing)) as started:
        warehouse = Warehouse(started, tables)
        asked = {"in": landing, "out": tables, "reports": not no_reports}
        with (
            warehouse.writing("ingest"),
            logged_run(started, warehouse, "ingest", asked, Progress(started, sys.stderr)) as run,
        ):
            take_in(started, landing, warehouse, run, reports=not no_reports)


@main.command()
@click.argument("places", nargs=-1, required=True, metavar="FILES...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each snapshot.")
def validate(places: tuple[Path, ...], as_json: bool) -> None:
    """Judge files of snapshots, or all of directories: one line for each snapshot. Needs neither Java nor Spark.

    Ends with 1 where one is not whole, or nothing was found.
    """
    from .validate import files_of
    from .validate import validate as judgements

    found = bad = 0
    for judgement in judgements(files_of(places)):
        found += 1
        bad += bool(judgement.reason)
        click.echo(json.dumps(asdict(judgement)) if as_json else judgement.described)
    if not found:
        click.echo("postroom-pipeline: no snapshot was found", err=True)
    sys.exit(EXIT_FAILED if bad or not found else 0)


for command in (bundle, compact, follow, report):
    main.add_command(command)
