"""``postroomd backup`` and ``postroomd restore``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import Source, configured, counted, json_option

if TYPE_CHECKING:
    from ..maintenance.restore import Restored, RestorePoint

#: Suffixes of other kinds of archive: a target with one is not meant as a folder.
_OTHER_ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z")
#: Maximum number of keys of lost messages in a text; JSON has all of them.
_SHOWN_KEYS = 20


def backup_command(versions: Callable[[], dict[str, str]]) -> click.Command:
    """The command ``postroomd backup``, which writes ``versions`` into the backup."""

    @click.command("backup")
    @click.option(
        "--to",
        required=True,
        metavar="DEST",
        help="New folder; new tar, if it ends in .tar, .tar.gz or .tgz; or - for a tar on standard output.",
    )
    @click.option("--without-journal", is_flag=True, help="Leave out the journal, the events that led to the state.")
    @json_option
    @configured
    def backup(source: Source, to: str, without_journal: bool, as_json: bool) -> None:
        """Write the state of DIR as of one event, and its journal, to DEST.

        The daemon may run, and keeps working. DEST is created complete and synced, or not at all; existing files are
        never overwritten. A tar on standard output is complete if the exit code is 0.
        """
        config = source.load_root("back up")
        if to == "-" and sys.stdout.isatty():
            raise click.UsageError("--to -: standard output is a terminal; redirect it to a file or a program")
        if to.endswith(_OTHER_ENDINGS) and not to.endswith(".tar.gz"):
            raise click.UsageError(f"--to {to}: a backup is a folder, or ends in .tar, .tar.gz or .tgz")
        from ..maintenance.backup import make_backup

        made = make_backup(config, to, not without_journal, versions())
        shown = {
            "ok": True,
            "to": to,
            "event": made.event,
            "root": made.root,
            "epoch": made.epoch,
            "backend": made.backend,
            "queues": made.queues,
            "messages": made.messages,
            "bodiesLost": made.bodies_lost,
            "bytes": sum(facts.size for facts in made.files.values()),
        }
        what = f"{counted(made.messages, 'message')} of {counted(made.queues, 'queue')}"
        text = [f"{to}: {what}, as of event {made.event} ({shown['bytes']} bytes)"]
        if made.bodies_lost:
            text.append(f"the bodies of {made.bodies_lost} messages are lost: these messages cannot be restored")
        click.echo(json.dumps(shown) if as_json else "\n".join(text), err=to == "-")

    return backup


@click.command()
@click.option(
    "--from",
    "backup",
    type=click.Path(path_type=Path),
    required=True,
    metavar="BACKUP",
    help="Folder or tar; also an hourly state file, or an export.",
)
@click.option(
    "--to-event", metavar="N|last", help="Continue to this event with the journal; last: to the end of the journal."
)
@click.option(
    "--to-time",
    metavar="TIME",
    help="Continue to this time with the journal: ISO 8601 with time zone, or Unix milliseconds.",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    help="Journal to continue with (default: that of DIR, before it is replaced).",
)
@click.option(
    "--payloads",
    type=click.Path(path_type=Path),
    help="Directory of the bodies to which that journal refers, for hybrid (default: that of DIR).",
)
@click.option("--replace", is_flag=True, help="Move the existing data to DIR/replaced-TIME. Nothing is deleted.")
@click.option(
    "--as-member",
    is_flag=True,
    help="Go on as the same root, without a new epoch: for another node of its cluster. Needs cluster.enabled.",
)
@json_option
@configured
def restore(
    source: Source,
    backup: Path,
    to_event: str | None,
    to_time: str | None,
    journal: Path | None,
    payloads: Path | None,
    replace: bool,
    as_member: bool,
    as_json: bool,
) -> None:
    """Restore DIR from a backup. Stop the daemon first.

    DIR must be new or empty, unless --replace is given. The restored root continues after the backup's event, or after
    a later one that the journal still has, with a new epoch. A damaged backup is refused before anything is changed. If
    the command is interrupted, DIR is as it was, or the daemon refuses to start until the same command has finished.
    """
    point = _restore_point(to_event, to_time)
    if as_member and not point.is_backup:
        raise click.UsageError("--as-member: not with --to-event or --to-time: the others give what is missing")
    if point.is_backup and (journal or payloads):
        raise click.UsageError("--journal and --payloads need --to-event or --to-time")
    config = source.load()
    from ..maintenance.restore import RestoreRequest
    from ..maintenance.restore import restore as carry_out
    from ..root.open_root import Sources

    in_flag = config.sources["backend"].startswith("flag")
    request = RestoreRequest(
        backup.absolute(), point, _absolute(journal), _absolute(payloads), replace, in_flag, as_member
    )
    done = carry_out(config, request, Sources())
    if as_json:
        click.echo(json.dumps(_shown(done)))
        return
    click.echo("\n".join(_lines(done, as_member)))


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path else None


def _restore_point(to_event: str | None, to_time: str | None) -> RestorePoint:
    from ..maintenance.restore import RestorePoint

    if to_event is not None and to_time is not None:
        raise click.UsageError("--to-event and --to-time: give one of them")
    if to_event == "last":
        return RestorePoint(end=True)
    if to_event is not None:
        if not re.fullmatch(r"[0-9]{1,18}", to_event):
            raise click.UsageError("--to-event: expected the id of an event, or last")
        return RestorePoint(event=int(to_event))
    return RestorePoint(wall_ms=_milliseconds(to_time)) if to_time is not None else RestorePoint()


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-time: {text} is not an ISO 8601 time") from None
    if time.tzinfo is None:
        raise click.UsageError(f"--to-time: {text} has no time zone: add Z, or an offset such as +02:00")
    return round(time.timestamp() * 1000)


def _shown(done: Restored) -> dict[str, Any]:
    names = {"wall_ms": "wallMs", "history_from": "historyFrom"}
    return {"ok": True} | {names.get(name, name): value for name, value in asdict(done).items()}


def _lines(done: Restored, as_member: bool) -> list[str]:
    from ..maintenance.restore.target import moment

    what = f"{counted(done.messages, 'message')} of {counted(done.queues, 'queue')}"
    lines = [
        f"restored to {done.backend}: {what}, as of event {done.event} of {moment(done.wall_ms)}",
        f"{'it goes on as the root' if as_member else 'the new root is'} {done.root}, epoch {done.epoch}",
    ]
    if not done.history_from:
        lines.append("the journal starts from scratch: it has no events from before")
    lines += [f"left out, because its body is lost: {key}" for key in done.lost[:_SHOWN_KEYS]]
    if len(done.lost) > _SHOWN_KEYS:
        lines.append(f"and {len(done.lost) - _SHOWN_KEYS} more")
    lines += [f"the previous data is in {directory}" for directory in done.replaced]
    return lines
