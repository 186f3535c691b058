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
            self.fail("an empty name is not a folder; use '.' for the current one", param, ctx)
        return super().convert(value, param, ctx)


@click.command(epilog="Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon answers, 130 interrupted.")
@click.option(
    "--out", type=_Folder(file_okay=False, path_type=Path), default=Path("."), show_default="here",
    help="Folder for the file, created if missing. It also records where --since last continues.",
)  # fmt: skip
@click.option("--device", default="", help="Name of the device in the file (default: nodeId, or the cluster's name).")
@click.option(
    "--since", default="last", show_default=True, metavar="EVENT|TIME|last",
    help="Where the events begin. last: after the last export into this folder (the first export takes all events). "
    "Or an event id, or a time: 2026-11-28T10:15, or 2h for two hours ago. Only last is remembered.",
)  # fmt: skip
@click.option(
    "--redact", type=click.Choice(["payload", "attributes", "none"]), default="payload", show_default=True,
    help="What is omitted. payload: bodies, except length, digest and shape. attributes: also the values of "
    "attributes. none: nothing.",
)  # fmt: skip
@click.option(
    "--hide-attribute", "hidden", multiple=True, metavar="PATTERN",
    help="Omit the values of attributes whose names match, such as 'customer*'. Can be repeated.",
)  # fmt: skip
@click.option(
    "--max-size", metavar="SIZE",
    help="End the events where the file would become larger: 500k, 64M. The next export continues there.",
)  # fmt: skip
@click.option(
    "--every", metavar="SPAN",
    help="Repeat until SIGTERM or SIGINT, with a file every 30m, 1h or 1d, the first one at once, even if nothing has "
    "happened. Failures are reported and retried, every 30 s while no daemon answers.",
)  # fmt: skip
@click.pass_context
def export(context: click.Context, /, **options: Any) -> None:
    """Write a snapshot of the device to a file: its state at one moment, and the events and requests since the last
    export.

    The file postroom-DEVICE-….jsonl.gz is JSON lines and gets its name only when it is complete. postroom-pipeline
    reads many of them. The daemon keeps working meanwhile. The user needs permission to read the journal; otherwise the
    file has only the state, and says so.

    \b
      postroom-console export --root /var/lib/postroom --out /media/usb
      postroom-console export --out /srv/snapshots --every 1h --hide-attribute 'customer*'
      postroom-console export --since 2h --redact none --out incident

    A line on standard output has the file's name, number of events and size. Failures and omissions are reported on
    standard error. If the disk is full, the new file is removed and the older ones stay. Only one export at a time
    writes into a folder.
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
        raise click.UsageError("--every needs --since last: each file continues where the one before ended")
    request = ExportRequest(options["out"], device, since, Redaction(options["redact"]), hidden, max_bytes)
    runner = ExportRunner(context.obj[0], request)
    context.exit(context.meta[GUARD](lambda: runner.run_every(every_s) if every_s else runner.run_once()))
