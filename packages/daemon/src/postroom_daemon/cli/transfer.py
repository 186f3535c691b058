"""``postroomd export``, ``postroomd import`` (also from other systems) and ``postroomd migrate``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, Final

import click
from click.shell_completion import CompletionItem

from postroom_common.errors import PostroomError

from ..config.settings import BACKENDS
from ..platform.logs import set_up_plain
from .options import Source, configured, counted, json_option

#: The backends to which messages can be moved.
_BACKENDS: Final = sorted(name for name, backend in BACKENDS.items() if backend != "memory")


@click.command("export")
@click.option("--to", default="-", metavar="FILE", help="New file; - for standard output (default).")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; may be given several times.")
@configured
def export_command(source: Source, to: str, queues: tuple[str, ...]) -> None:
    """Write queues and messages of DIR as JSON lines, for `postroomd import`.

    Includes ids, attempts, delays, leases, dead letters with their history, policies, deduplication keys and schedules,
    all as of one event; without --queue also whether the daemon drains. The daemon may run, and keeps working. FILE is
    created complete, or not at all.
    """
    from ..maintenance.backup.make import check_apart
    from ..maintenance.transfer import export_state
    from ..platform.atomic_create import new_file

    config = source.load_root("export")
    if to == "-":
        if sys.stdout.isatty():
            raise click.UsageError(
                "standard output is a terminal: redirect it to a file or a program, or name a file with --to"
            )
        totals = export_state(config, sys.stdout.buffer, frozenset(queues), Path(gettempdir()))
    else:
        path = Path(os.path.abspath(to))
        check_apart(path, config)
        with new_file(path) as file:
            totals = export_state(config, file, frozenset(queues), path.parent)
    click.echo(f"{counted(totals.messages, 'message')} of {counted(totals.queues, 'queue')}", err=True)


class _File(click.Argument):
    """An argument that the usage of sub-commands does not show."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []


def _systems_and_files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell may complete behind ``import``."""
    names = [name for name in import_command.commands if name.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


class _ImportGroup(click.Group):
    """A group that is a command itself: unless the first word names a sub-command, it is FILE or an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.args = args
            return args
        ctx.allow_interspersed_args = True
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.args:
            return click.Command.invoke(self, ctx)
        name, *rest = ctx.args
        with self.commands[name].make_context(name, rest, parent=ctx) as inner:
            return inner.command.invoke(inner)


@click.group(
    "import",
    cls=_ImportGroup,
    no_args_is_help=False,
    options_metavar="[OPTIONS] [FILE]",
    subcommand_metavar="| SYSTEM [OPTIONS]",
)
@click.argument("file", cls=_File, default="-", metavar="[FILE]", shell_complete=_systems_and_files)
@json_option
@configured
def import_command(source: Source, file: str, as_json: bool) -> None:
    """Import what `postroomd export` wrote, from FILE or standard input (-, or none); or the data of another SYSTEM.

    The whole file is checked first. Messages keep id, attempts, delay, priority, history, body and order; a leased one
    becomes ready. Deduplication keys stay valid as long as they would have, schedules continue, and if the other root
    drained, DIR drains. Existing queues and messages stay as they are. Logs are not imported: `postroomd restore` makes
    a new root with them. After an interruption, import the same file again. Never import it again once messages of it
    were consumed: they would be delivered a second time.
    """
    from ..maintenance.transfer import import_state

    config = source.load()
    with _readable(file) as opened:
        done = import_state(config, opened, "standard input" if file == "-" else file)
    if as_json:
        shown = {name: getattr(done, name) for name in ("queues", "messages", "facts", "skipped", "lost")}
        click.echo(json.dumps({"ok": True, "root": done.head.root, "event": done.head.event, **shown}))
        return
    what = f"{counted(done.messages, 'message')} and {counted(done.queues, 'queue')}"
    click.echo(f"imported {what}; {done.skipped} existed already")
    if done.facts:
        click.echo(f"{done.facts} schedules, deduplication keys and states of the root imported")
    if done.drains:
        click.echo("no new messages are accepted, as in the exported root: `postroom drain --no-draining` ends that")
    if done.lost:
        click.echo(f"{done.lost} messages had no body, and were skipped")


_check: Final = click.option("--check", is_flag=True, help="Change nothing; show what would be imported.")
_accept_loss: Final = click.option(
    "--accept-loss", is_flag=True, help="Import the rest even if more than half of the messages are unusable."
)


@import_command.command("cpp")
@_check
@_accept_loss
@json_option
@configured
def import_cpp_command(source: Source, check: bool, accept_loss: bool, as_json: bool) -> None:
    """Import the C++ system's data. Stop both daemons first.

    That is the SQLite database at sqlite.dbPath (with the payload files of the hybrid backend), or the message files
    below filesystem.root; if both exist, what is in the place that the backend uses. The journal of DIR must have no
    messages yet. Queues, messages in all states and policies are imported, all or nothing. The old data stays, under
    names that end in .before-migration. If the command is interrupted, run it again. What cannot be used is copied to
    DIR/quarantine, with the reason; if that is most of the messages, nothing is imported.
    """
    from ..doors.mailbox.directories import unprocessed_requests
    from ..maintenance.import_cpp import check_cpp, import_cpp
    from ..maintenance.verify.check import default_workspace
    from ..root.open_root import Sources

    set_up_plain("warning")
    config = source.load_root("import")
    if check:
        done = check_cpp(config, default_workspace(), accept_loss)
    else:
        done = import_cpp(config, Sources(), accept_loss)
    if as_json:
        old = list(map(str, done.old))
        shown: dict[str, Any] = {"database": str(done.source), "counts": done.counts, "unusableRows": done.unusable}
        shown |= {"unfinishedFiles": done.unfinished, "old": old[0] if old else None, "oldBodies": old[1:]}
        shown["otherData"] = list(map(str, done.others))
        click.echo(json.dumps({"ok": True, "checked": check, **shown}))
        return
    if check or done.old:
        _show_imported(done.source, check, done.counts, done.unusable)
    if done.old:
        click.echo(f"the old data is {' and '.join(map(str, done.old))}: remove it when you are sure")
    elif not check:
        click.echo(f"{done.source}: the interrupted import is complete now")
    if done.unfinished:
        text = "ignored: the C++ system had not finished it, and confirmed it to nobody"
        click.echo(f"{counted(done.unfinished, 'file')} {text}")
    left = unprocessed_requests(config.settings)
    if left:
        click.echo(f"{counted(len(left), 'request')} in {left[0].parent} will not be executed unless you move them")
    for other in done.others:
        click.echo(f"{other} is also of the C++ system, and is not imported")


@import_command.command("websocket-mq")
@click.argument("database", type=click.Path(path_type=Path))
@_check
@_accept_loss
@json_option
@configured
def import_websocket_mq_command(source: Source, database: Path, check: bool, accept_loss: bool, as_json: bool) -> None:
    """Import DATABASE of WebSocket MQ (BlackGlory/mq 0.7). Stop its server and the daemon first.

    DATABASE is the file data.db, or its directory. It is copied, with the journal that a killed server has left beside
    it, and not changed. The journal of DIR must have no messages yet. Queues with their configuration and counts, and
    messages in all states with their slots, priorities, ids and claims to be unique are imported, all or nothing. What
    is ordered or active stays so until its time is over, which goes on meanwhile. What cannot be used is copied to
    DIR/quarantine, with the reason; if that is most of the messages, nothing is imported.
    """
    from ..maintenance.import_websocket_mq import check_websocket_mq, import_websocket_mq
    from ..maintenance.verify.check import default_workspace
    from ..root.open_root import Sources

    set_up_plain("warning")
    config = source.load()
    if check:
        done = check_websocket_mq(config, database, default_workspace(), accept_loss)
    else:
        done = import_websocket_mq(config, database, default_workspace(), Sources(), accept_loss)
    if as_json:
        shown = {"database": str(done.source), "counts": done.counts, "unusableRows": done.unusable}
        click.echo(json.dumps({"ok": True, "checked": check, **shown}))
        return
    _show_imported(done.source, check, done.counts, done.unusable)
    if not check:
        click.echo("add the door to the gateway's configuration (/etc/postroom/gateway.toml): [doors.mq-websocket]")


def _ends(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """The values of ``--expire``."""
    ends = {}
    for value in values:
        topic, _, end = value.rpartition("=")
        if not topic or not end.isdecimal():
            raise click.BadParameter(f"{value!r} must be TOPIC=UNIX_MS")
        ends[topic] = int(end)
    return ends


@import_command.command("smss")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--expire", multiple=True, metavar="TOPIC=UNIX_MS", callback=_ends, help="When a topic ends; 0: never.")
@click.option(
    "--retention-hours",
    type=click.FloatRange(0, 24 * 36500),
    default=0,
    help="How long topics keep messages; 0 (default): for ever.",
)
@_check
@_accept_loss
@json_option
@configured
def import_smss_command(
    source: Source,
    store: Path,
    expire: dict[str, int],
    retention_hours: float,
    check: bool,
    accept_loss: bool,
    as_json: bool,
) -> None:
    """Import STORE, the data directory of smss. Stop smss and the daemon first.

    STORE is the directory of `store.path`, with binlog and topic in it; it is only read. The journal of DIR must have
    no messages yet. Topics with their lives, messages with their event ids, and delayed messages are imported, all or
    nothing, so that subscribers go on at their last event id. What a crash has cut off, or what is damaged, comes from
    the binlog if it has it. What cannot be used is copied to DIR/quarantine, with the reason; if that is most of the
    messages, nothing is imported.

    The database in meta is not read: a topic whose creation the binlog does not have any more never ends, unless
    --expire says when, and delayed messages are those of the binlog.
    """
    from ..maintenance.import_smss import SmssSettings, check_smss, import_smss
    from ..root.open_root import Sources

    set_up_plain("warning")
    config, settings = source.load(), SmssSettings(retention_hours, expire, accept_loss)
    if check:
        done = check_smss(config, store, settings)
    else:
        done = import_smss(config, store, settings, Sources())
    if as_json:
        shown = {"store": str(done.source), "counts": done.counts, "unusableRows": done.unusable}
        shown |= {"firstEvent": done.first_id, "lastEvent": done.last_id, "withoutEnd": done.permanent}
        click.echo(json.dumps({"ok": True, "checked": check, **shown}))
        return
    _show_imported(done.source, check, done.counts, done.unusable)
    if done.first_id != 1:
        since = f"begins with event {done.first_id}" if done.first_id else "has no events"
        click.echo(f"the binlog {since}: messages that were delayed before it are not in it")
    if done.permanent:
        names = ", ".join(done.permanent)
        click.echo(f"nothing says when these topics end, so they never do (--expire TOPIC=UNIX_MS): {names}")
    if not check:
        click.echo(f"event ids go on behind {done.last_id}")
        if not retention_hours:
            click.echo("topics keep all messages until you say how long (hours), for each topic TOPIC:")
            click.echo("""  postroom policy set --queue TOPIC --policy '{"log": {"retentionHours": 168}}'""")
        click.echo("add the door to the gateway's configuration (/etc/postroom/gateway.toml): [doors.smss]")


def _show_imported(source: Path, check: bool, counts: dict[str, int], unusable: int) -> None:
    """Say what was imported, or with ``check`` what would be."""
    imported = ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "nothing"
    if check:
        click.echo(f"{source}: would import {imported}; {unusable} rows cannot be used")
    else:
        where = " and are in quarantine" if unusable else ""
        click.echo(f"{source}: imported {imported}; {unusable} rows cannot be used{where}")


@click.command()
@click.option("--to", "target", type=click.Choice(_BACKENDS), required=True, help="The new backend.")
@json_option
@configured
def migrate(source: Source, target: str, as_json: bool) -> None:
    """Move all messages of DIR to another backend. Stop the daemon first.

    Fills the new store beside its place, compares it with the old one message by message, puts it in place, and sets
    the backend in config.json. The old store stays, under a name that ends in .replaced-TIME: remove it once you are
    satisfied. If the command is interrupted, the old store stays in use; run the same command again to continue.
    """
    from ..maintenance.migrate import migrate as carry_out

    config = source.load_root("migrate")
    done = carry_out(config, target, lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps({
            "ok": True, "from": done.old, "to": done.new, "event": done.event, "messages": done.messages,
            "lost": done.lost, "kept": [str(path) for path in done.kept],
        }))  # fmt: skip
        return
    click.echo(f"{counted(done.messages, 'message')} moved from {done.old} to {done.new}, as of event {done.event}")
    for key in done.lost:
        click.echo(f"not moved, because its body is lost: {key}")
    for path in done.kept:
        click.echo(f"the old store is {path}")


@contextmanager
def _readable(name: str) -> Iterator[IO[bytes]]:
    """A seekable file; standard input is copied to a temporary one."""
    with ExitStack() as stack:
        if name != "-":
            try:
                opened: IO[bytes] = stack.enter_context(open(name, "rb"))
            except OSError as error:
                raise PostroomError(f"{name} cannot be read: {error.strerror}") from None
        elif sys.stdin.isatty():
            raise click.UsageError("standard input is a terminal: name a file")
        else:
            opened = stack.enter_context(TemporaryFile())
            shutil.copyfileobj(sys.stdin.buffer, opened)
            opened.seek(0)
        yield opened
