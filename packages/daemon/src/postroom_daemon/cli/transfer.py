"""``postroomd export`` and ``postroomd import``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO

import click

from postroom_common.errors import PostroomError

from .options import Source, configured, json_option


@click.command("export")
@click.option("--to", default="-", metavar="FILE", help="New file; - for standard output (default).")
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Only this queue; may be given several times.")
@configured
def export_command(source: Source, to: str, queues: tuple[str, ...]) -> None:
    """Write queues and messages of DIR as lines of JSON, for `postroomd import`.

    With ids, attempts, delays, leases, dead letters with their history, policies, deduplication keys and schedules, all
    as of one event; of all queues also whether the daemon drains. The daemon may run, and goes on working meanwhile.
    FILE is there in the end, whole, or it is not.
    """
    from ..maintenance.backup.sink import check_apart
    from ..maintenance.transfer import export_state
    from ..platform.atomic_create import new_file

    config = source.load_root("export")
    if to == "-":
        if sys.stdout.isatty():
            raise click.UsageError("standard output is a terminal: send it to a file or a program, or name one by --to")
        totals = export_state(config, sys.stdout.buffer, frozenset(queues), Path(gettempdir()))
    else:
        path = Path(os.path.abspath(to))
        check_apart(path, config)
        with new_file(path) as file:
            totals = export_state(config, file, frozenset(queues), path.parent)
    click.echo(f"{totals.messages} messages of {totals.queues} queues", err=True)


@click.command("import")
@click.argument("file", default="-", metavar="[FILE]")
@json_option
@configured
def import_command(source: Source, file: str, as_json: bool) -> None:
    """Take over what `postroomd export` wrote: from FILE, or from standard input (-, or none).

    The file is checked as a whole first. Messages keep id, attempts, delay, priority, history and body, and their
    order; one that was leased is ready. Deduplication keys count as long as they would have, schedules go on, and if
    the other root took no new messages, DIR does not. What is there already is left as it is: a queue keeps its policy,
    a message its state. So the same file may be imported again after an interruption, unless messages were consumed in
    between.
    """
    from ..maintenance.transfer import import_state

    config = source.load()
    with _readable(file) as opened:
        done = import_state(config, opened, "standard input" if file == "-" else file)
    if as_json:
        shown = {name: getattr(done, name) for name in ("queues", "messages", "facts", "skipped", "lost")}
        click.echo(json.dumps({"ok": True, "root": done.head.root, "event": done.head.event, **shown}))
        return
    click.echo(f"{done.messages} messages and {done.queues} queues imported; {done.skipped} were there already")
    if done.facts:
        click.echo(f"{done.facts} schedules, deduplication keys and states of the root imported")
    if done.drains:
        click.echo("no new messages are taken, as where it was exported: `postroom drain --no-draining` ends that")
    if done.lost:
        click.echo(f"{done.lost} messages came without their body, and were passed over")


@contextmanager
def _readable(name: str) -> Iterator[IO[bytes]]:
    """A file that can be read from any place: standard input is kept in a temporary one."""
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
