"""The command ``postroom-console``. Textual is only imported for the screen."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from .export.command import GUARD, export
from .i18n import LANGUAGES, tr, use_language
from .paths import DaemonPaths, find_paths

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_INTERRUPTED: Final = 130
#: Permission to enter a directory is enough: the files in it have permissions of their own.
_DIRECTORY: Final = click.Path(path_type=Path, readable=False)
_RECORD_EVERY_S: Final = 0.25

EPILOG: Final = (
    """Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon answers (try again), 130 interrupted."""
)


@click.group(invoke_without_command=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root", type=_DIRECTORY, envvar="POSTROOM_ROOT", help="The daemon's root, with ipc, journal and traffic below it."
)
@click.option("--ipc-root", type=_DIRECTORY, envvar="POSTROOM_IPC_ROOT", help="The mailbox (default: ROOT/ipc).")
@click.option("--journal", type=_DIRECTORY, help="The journal's directory (default: ROOT/journal).")
@click.option("--traffic", type=_DIRECTORY, help="The traffic log's directory (default: ROOT/traffic).")
@click.option("--once", is_flag=True, help="Print one reading as tables and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print one reading as JSON and exit.")
@click.option("--read-only", is_flag=True, default=None, help="Disable all actions.")
@click.option("--lang", type=click.Choice(LANGUAGES), help="Language of the texts (default: from the locale).")
@click.option("--ascii", is_flag=True, default=None, help="Draw with ASCII characters only.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also record what the console sees to a new FILE, including the bodies of messages.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay the recording in FILE instead of showing a running daemon.",
)
@click.option(
    "--width", type=click.IntRange(20, 1000), help="Width of plain tables in cells (default: the terminal's)."
)
@click.version_option(package_name="postroom-console", prog_name="postroom-console")
@click.pass_context
def main(context: click.Context, /, **options: Any) -> None:
    """Show the queues, traffic, leases and dead letters of one device, and act on them.

    Without a command, open the screen. If the terminal cannot show it, print one reading as tables, or with --record,
    record until interrupted.
    """
    use_language(options["lang"] or "")
    places = find_paths(options["root"], options["ipc_root"], options["journal"], options["traffic"])
    context.obj = places, options
    context.meta[GUARD] = guarded
    is_once = options["once"] or options["as_json"]
    if options["record"] and (options["replay"] or is_once or context.invoked_subcommand):
        raise click.UsageError("--record cannot be combined with --replay, --once, --json or a command")
    if context.invoked_subcommand:
        if options["replay"]:
            raise click.UsageError("--replay cannot be combined with a command")
        return
    if is_once:
        sys.exit(guarded(lambda: _print_once(places, options)))
    problem = _problem_of_terminal()
    if not problem:
        sys.exit(guarded(lambda: _show(places, options)))
    if options["record"]:
        click.echo(f"postroom-console: {problem}: {tr('recording until interrupted')}", err=True)
        sys.exit(guarded(lambda: _record(places, options)))
    click.echo(f"postroom-console: {problem}: {tr('--once, --json and watch work without a screen')}", err=True)
    sys.exit(guarded(lambda: _print_once(places, options)))


@main.command()
@click.argument("queue", default="")
@click.option("--filter", "wanted", default="", help="Only records that match; see the documentation.")
@click.option("--json", "raw", is_flag=True, help="Print the lines as they are in the files.")
@click.option(
    "--follow/--no-follow", default=True, help="Continue until interrupted, or exit after the existing lines."
)
@click.pass_context
def watch(context: click.Context, queue: str, wanted: str, raw: bool, follow: bool) -> None:
    """Print events and requests line by line, of QUEUE or of all queues, from the last 64 KiB of each file on."""
    from .data.filters import FilterError
    from .data.tails import Reader
    from .plain import watch as watch_on

    places, options = context.obj

    def run() -> None:
        obey_interrupts()
        reader = Reader(places.journal, places.traffic)
        try:
            watch_on(reader, queue, wanted, _width(options), _write_line, _warn, _is_left, raw, follow)
        except FilterError as error:
            raise click.UsageError(str(error)) from None
        finally:
            reader.close()

    sys.exit(guarded(run))


main.add_command(export)


def _use_place(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    """Replace what the option of the same name before the command says."""
    if value is not None:
        options = context.obj[1] | {parameter.name: value}
        places = find_paths(options["root"], options["ipc_root"], options["journal"], options["traffic"])
        context.obj = places, options


for _command in (watch, export):
    for _name, _help in (("--root", "The daemon's root."), ("--ipc-root", "The mailbox (default: ROOT/ipc).")):
        _command.params.append(
            click.Option([_name], type=_DIRECTORY, callback=_use_place, expose_value=False, help=_help)
        )


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _warn(text: str) -> None:
    click.echo(f"postroom-console: {text}", err=True)


def _is_left() -> bool:
    """Whether the reader of standard output has gone: without a line to write, nothing else would show it."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))


def _print_once(places: DaemonPaths, options: dict[str, Any]) -> None:
    from .data.replay import Replay
    from .plain import as_json, as_table, read_last, read_once

    if options["replay"]:
        replay = Replay(options["replay"])
        reading = read_last(replay)
        if replay.damaged:
            _warn(replay.status_text())
        replay.stop()
    else:
        reading = read_once(places)
    if options["as_json"]:
        _write_line(as_json(reading).decode())
    else:
        _write_line("\n".join(as_table(reading, _width(options))))


def _show(places: DaemonPaths, options: dict[str, Any]) -> None:
    from .data.config import ConfigError, load_config
    from .data.replay import Replay
    from .tui.run import run

    try:
        config = load_config(options)
        source = Replay(options["replay"]) if options["replay"] else _source(places, options)
        status = run(source, places.name, config, places)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    if status:
        sys.exit(status)


def _source(places: DaemonPaths, options: dict[str, Any]) -> Any:
    from .data.live import Live
    from .data.recording import Recorder

    live = Live(places.make_client, places.journal, places.traffic)
    return Recorder(live, options["record"], places.name) if options["record"] else live


def _record(places: DaemonPaths, options: dict[str, Any]) -> None:
    from .data.link import Refused

    recorder = _source(places, options)
    recorder.subscribe("health", "health", {}, 4000)
    recorder.subscribe("queues", "list_queues", {"limit": 1000}, 2000)
    recorder.start()
    obey_interrupts()
    try:
        while not recorder.problem:
            recorder.drain()
            time.sleep(_RECORD_EVERY_S)
        raise Refused(recorder.status_text())
    finally:
        recorder.stop()


def _width(options: dict[str, Any]) -> int:
    return int(options["width"] or shutil.get_terminal_size((80, 24)).columns)


def obey_interrupts() -> None:
    """For what runs until it is stopped: SIGINT raises ``KeyboardInterrupt`` even if the starter of this process
    ignores it, as a shell does for background jobs of a script."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def guarded(work: Callable[[], None]) -> int:
    """Run something that writes to standard output; returns the exit status."""
    from .data.link import Refused, Unreachable
    from .data.model import MALFORMED
    from .data.recording import RecordingError

    if sys.stdout is None:  # closed by the caller, who only wants the exit status
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        work()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _end_output()
        return 0
    except Unreachable as error:
        _warn(str(error))
        return EXIT_UNREACHABLE
    except (Refused, RecordingError) as error:
        _warn(str(error))
        return EXIT_FAILED
    except MALFORMED as error:
        _warn(tr("malformed answer: {error}").format(error=repr(error)))
        return EXIT_FAILED
    except OSError as error:
        _warn(": ".join(filter(None, (str(error.filename or ""), error.strerror or str(error)))))
        _end_output()
        return EXIT_FAILED
    return 0


def _end_output() -> None:
    """Write what standard output still takes. What it refuses is dropped: the interpreter flushes once more at its end,
    and another error there would change the exit status."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _problem_of_terminal() -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return tr("not a terminal")
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        return tr("this terminal cannot show a screen")
    return ""
