"""The command ``postroom-console``. The terminal library is only imported for the screen."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click

from .i18n import LANGUAGES, tr, use_language
from .places import Places, find_places

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_INTERRUPTED: Final = 130
_DIRECTORY: Final = click.Path(path_type=Path)

EPILOG: Final = (
    """Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon answers (try again), 130 interrupted."""
)


@click.group(invoke_without_command=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root", type=_DIRECTORY, envvar="POSTROOM_ROOT", help="The daemon's root: its ipc, journal and traffic."
)
@click.option("--ipc-root", type=_DIRECTORY, envvar="POSTROOM_IPC_ROOT", help="The mailbox; ROOT/ipc by default.")
@click.option("--journal", type=_DIRECTORY, help="The journal's directory; ROOT/journal by default.")
@click.option("--traffic", type=_DIRECTORY, help="The traffic log's directory; ROOT/traffic by default.")
@click.option("--once", is_flag=True, help="Print one reading as a table, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one reading as JSON, and end.")
@click.option("--read-only", is_flag=True, envvar="POSTROOM_CONSOLE_READ_ONLY", help="Look only: no action is offered.")
@click.option("--lang", type=click.Choice(LANGUAGES), help="Language of the texts; by default LANG decides.")
@click.option("--ascii", "only_ascii", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--record", type=_DIRECTORY, help="Write what the console sees to FILE as well. Payloads are in it.")
@click.option("--replay", type=_DIRECTORY, help="Show what was recorded in FILE instead of a running daemon.")
@click.option("--width", type=click.IntRange(20, 1000), help="Cells of a plain table; by default the terminal's.")
@click.version_option(package_name="postroom-console", prog_name="postroom-console")
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Show the queues, the traffic, the leases and the dead letters of one device, and act on them.

    Without a command it opens the screen. A terminal that cannot show it gets one reading as a table.
    """
    use_language(options["lang"] or "")
    places = find_places(options["root"], options["ipc_root"], options["journal"], options["traffic"])
    context.obj = places, options
    if context.invoked_subcommand:
        return
    if options["once"] or options["as_json"]:
        sys.exit(_guarded(lambda: _print_once(places, options)))
    problem = _problem_of_terminal()
    if problem:
        click.echo(f"postroom-console: {problem}: --once, --json and watch do without a screen", err=True)
        sys.exit(_guarded(lambda: _print_once(places, options)))
    from .tui.run import run

    sys.exit(run(places, options))


@main.command()
@click.argument("queue", default="")
@click.option("--filter", "wanted", default="", help="Only records that it means; see the documentation.")
@click.option("--json", "raw", is_flag=True, help="The lines as they stand in the files.")
@click.pass_context
def watch(context: click.Context, queue: str, wanted: str, raw: bool) -> None:
    """Print what happens line by line, in QUEUE or in all, until interrupted."""
    from .data.filters import FilterError
    from .plain import watch as watch_on

    places, options = context.obj

    def run() -> None:
        try:
            watch_on(places, queue, wanted, _width(options), _write_line, raw)
        except FilterError as error:
            raise click.UsageError(str(error)) from None

    sys.exit(_guarded(run))


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _print_once(places: Places, options: dict[str, Any]) -> None:
    from .plain import as_json, as_table, read_once

    model = read_once(places)
    if options["as_json"]:
        sys.stdout.write(as_json(model).decode() + "\n")
    else:
        sys.stdout.write("\n".join(as_table(model, _width(options))) + "\n")
    sys.stdout.flush()


def _width(options: dict[str, Any]) -> int:
    return int(options["width"] or shutil.get_terminal_size((80, 24)).columns)


def _guarded(work: Any) -> int:
    """Run what writes to the standard output; the exit status."""
    from .plain import Refused, Unreachable

    try:
        work()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
        return 0
    except Unreachable as error:
        click.echo(f"postroom-console: {error}", err=True)
        return EXIT_UNREACHABLE
    except (Refused, OSError) as error:
        click.echo(f"postroom-console: {error}", err=True)
        return EXIT_FAILED
    return 0


def _problem_of_terminal() -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return tr("this is no terminal")
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        return tr("this terminal can show no screen")
    return ""
