"""The command ``export`` of ``postroom-console``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

#: The key of the context under which ``cli`` stores what runs a command and returns its exit status.
GUARD: Final = "postroom_console.guard"


class _Folder(click.Path):
    """A folder with a name. An empty name, from a variable that is not set, would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty name is no folder; '.' is the present one", param, ctx)
        return super().convert(value, param, ctx)


@click.command(epilog="Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon answers, 130 interrupted.")
@click.option(
    "--out", type=_Folder(file_okay=False, path_type=Path), default=Path("."), show_default="here",
    help="Folder for the file; it is made where it is missing. What --since last means is remembered in it.",
)  # fmt: skip
@click.option("--device", default="", help="Name of the device in the file; by default the daemon's nodeId.")
@click.option(
    "--since", default="last", show_default=True, metavar="EVENT|TIME|last",
    help="Where the events begin: behind the last export into this folder (the first one takes all there are), at an "
    "event's number, or at a time: 2026-11-28T10:15 or 2h for two hours ago. Only last is remembered.",
)  # fmt: skip
@click.option(
    "--redact", type=click.Choice(["payload", "attributes", "none"]), default="payload", show_default=True,
    help="What is left out. payload: bodies, of which length, digest and shape are told. attributes: their values as "
    "well. none: nothing.",
)  # fmt: skip
@click.option(
    "--hide-attribute", "hidden", multiple=True, metavar="PATTERN",
    help="Leave out the values of attributes whose name fits, such as 'customer*'. Can be given more than once.",
)  # fmt: skip
@click.option(
    "--max-size", metavar="SIZE",
    help="Let the events end where the file has so much: 500k, 64M. The next export goes on there.",
)  # fmt: skip
@click.option(
    "--every", metavar="SPAN",
    help="Go on until SIGTERM or SIGINT, with a file each 30m, 1h or 1d, the first at once, also when nothing has "
    "happened. What fails is told and tried again; a daemon that is away is asked each 30 s.",
)  # fmt: skip
@click.pass_context
def export(context: click.Context, /, **options: Any) -> None:
    """Write a snapshot of the device to a file: its state at one moment, and what happened since the last export.

    The file postroom-DEVICE-….jsonl.gz is JSON lines; it is there under its name only once it is whole.
    postroom-pipeline reads many of them. The daemon goes on working meanwhile. This user must be able to read the
    journal: without it the file has the state alone, and says so.

    \b
      postroom-console --root /var/lib/postroom export --out /media/usb
      postroom-console export --out /srv/snapshots --every 1h --hide-attribute 'customer*'
      postroom-console export --since 2h --redact none --out incident

    A line on the standard output names each file, the events in it and its size. What went wrong, and what the file
    cannot tell, goes to the standard error. If the disk is full nothing is left of the new file, and the older ones
    stay. One export at a time writes into a folder.
    """
    from .redaction import Redaction
    from .request import ExportRequest, read_since, read_size, read_span, read_text
    from .runner import ExportRunner

    try:
        since = read_since(options["since"])
        every_s = read_span(options["every"]) if options["every"] else 0
        max_bytes = read_size(options["max_size"]) if options["max_size"] else None
        device, hidden = read_text(options["device"]), tuple(map(read_text, options["hidden"]))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if every_s and not since.is_last:
        raise click.UsageError("--every goes with --since last: each file goes on where the one before ended")
    request = ExportRequest(options["out"], device, since, Redaction(options["redact"]), hidden, max_bytes)
    runner = ExportRunner(context.obj[0], request)
    context.exit(context.meta[GUARD](lambda: runner.run_every(every_s) if every_s else runner.run_once()))
