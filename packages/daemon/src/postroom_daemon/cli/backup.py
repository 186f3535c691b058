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

from .options import Source, configured, json_option

if TYPE_CHECKING:
    from ..maintenance.restore import Restored, Wish

#: What a file of another kind would end in: nobody who writes one means a folder.
_OTHER_ENDINGS = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z")
#: Keys of lost messages that a text names; JSON has them all.
_SHOWN_KEYS = 20


def backup_command(versions: Callable[[], dict[str, str]]) -> click.Command:
    """``postroomd backup``, which tells ``versions`` in the backup."""

    @click.command("backup")
    @click.option(
        "--to",
        required=True,
        metavar="DEST",
        help="New folder; or new tar, when it ends in .tar, .tar.gz or .tgz; or - for a tar on standard output.",
    )
    @click.option("--without-journal", is_flag=True, help="Leave out the events that led to the state.")
    @json_option
    @configured
    def backup(source: Source, to: str, without_journal: bool, as_json: bool) -> None:
        """Write all that DIR holds at one event to DEST.

        The daemon may run, and goes on working meanwhile. DEST is there in the end, whole and synced, or it is not;
        what is there already is never overwritten. A tar on standard output is whole when the exit code is 0.
        """
        config = source.load_root("back up")
        if to == "-" and sys.stdout.isatty():
            raise click.UsageError("--to -: standard output is a terminal; send it to a file or a program")
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
        text = [
            f"{to}: {made.messages} messages of {made.queues} queues, as of event {made.event} ({shown['bytes']} bytes)"
        ]
        if made.bodies_lost:
            text.append(f"the bodies of {made.bodies_lost} messages are lost: they cannot be restored")
        click.echo(json.dumps(shown) if as_json else "\n".join(text), err=to == "-")

    return backup


@click.command()
@click.option(
    "--from",
    "backup",
    type=click.Path(path_type=Path),
    required=True,
    metavar="BACKUP",
    help="Folder or tar; or an hourly state file, or an export.",
)
@click.option("--to-event", metavar="N|last", help="Go on to this event, by the journal; last: to its end.")
@click.option("--to-time", metavar="TIME", help="Go on to this time: ISO 8601 with its zone, or Unix milliseconds.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    help="Journal to go on by (default: that of DIR, before it is replaced).",
)
@click.option(
    "--payloads",
    type=click.Path(path_type=Path),
    help="Directory of the bodies that this journal refers to, for hybrid (default: that of DIR).",
)
@click.option("--replace", is_flag=True, help="Move what is in DIR to DIR/replaced-TIME. Nothing is deleted.")
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
    as_json: bool,
) -> None:
    """Restore DIR from a backup, while no daemon runs there.

    DIR is new, or empty, or --replace is given. It goes on behind the backup's event, or a later one that the journal
    still tells, under a new epoch. A backup that is damaged is refused before anything is changed. When it is stopped
    half-way, DIR is as it was, or the daemon refuses to start until the same command has finished it.
    """
    wish = _wish(to_event, to_time)
    if wish.is_backup and (journal or payloads):
        raise click.UsageError("--journal and --payloads: give --to-event or --to-time as well")
    config = source.load()
    from ..maintenance.restore import Request
    from ..maintenance.restore import restore as carry_out
    from ..root.open_root import Sources

    in_flag = config.sources["backend"].startswith("flag")
    request = Request(backup.absolute(), wish, _absolute(journal), _absolute(payloads), replace, in_flag)
    done = carry_out(config, request, Sources())
    if as_json:
        click.echo(json.dumps(_shown(done)))
        return
    click.echo("\n".join(_lines(done)))


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path else None


def _wish(to_event: str | None, to_time: str | None) -> Wish:
    from ..maintenance.restore import Wish

    if to_event is not None and to_time is not None:
        raise click.UsageError("--to-event and --to-time: give one of them")
    if to_event == "last":
        return Wish(end=True)
    if to_event is not None:
        if not re.fullmatch(r"[0-9]{1,18}", to_event):
            raise click.UsageError("--to-event: expected the id of an event, or last")
        return Wish(event=int(to_event))
    return Wish(wall_ms=_milliseconds(to_time)) if to_time is not None else Wish()


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-time: {text} is no time of ISO 8601") from None
    if time.tzinfo is None:
        raise click.UsageError(f"--to-time: {text} names no zone: add Z, or an offset such as +02:00")
    return round(time.timestamp() * 1000)


def _shown(done: Restored) -> dict[str, Any]:
    names = {"wall_ms": "wallMs", "history_from": "historyFrom"}
    return {"ok": True} | {names.get(name, name): value for name, value in asdict(done).items()}


def _lines(done: Restored) -> list[str]:
    from ..maintenance.restore.target import moment

    what = f"{done.messages} messages of {done.queues} queues"
    lines = [
        f"restored to {done.backend}: {what}, as of event {done.event} of {moment(done.wall_ms)}",
        f"it goes on as root {done.root}, epoch {done.epoch}",
    ]
    if not done.history_from:
        lines.append("the journal begins anew: it tells nothing of what was before")
    lines += [f"left out, its body is lost: {key}" for key in done.lost[:_SHOWN_KEYS]]
    if len(done.lost) > _SHOWN_KEYS:
        lines.append(f"and {len(done.lost) - _SHOWN_KEYS} more")
    lines += [f"what was there before is in {directory}" for directory in done.replaced]
    return lines
