"""``postroomd divergent``: groups that this member of a cluster had in its journal, and the others did not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from postroom_common.errors import PostroomError
from postroom_common.events import decode_event

from .options import Source, configured, counted, json_option


@click.group()
def divergent() -> None:
    """Groups that the cluster has not confirmed, and that were set aside.

    Nobody was answered about them. Each file has the events of one group. A file whose group turns out to be confirmed
    is removed by the daemon.
    """


@divergent.command("list")
@json_option
@configured
def list_(source: Source, as_json: bool) -> None:
    """List the groups that were set aside. Changes nothing."""
    shown = [_described(name, lines) for name, lines in _groups(source).items()]
    if as_json:
        click.echo(json.dumps({"ok": True, "groups": shown}))
        return
    for one in shown:
        types = ", ".join(f"{count} {type_}" for type_, count in one["types"].items())
        click.echo(f"{one['name']}  events {one['first']} to {one['last']}: {types}")
    click.echo(counted(len(shown), "group"))


@divergent.command()
@click.argument("name")
@configured
def show(source: Source, name: str) -> None:
    """Print the events of the group NAME, one a line. Changes nothing."""
    click.echo(b"".join(_group(source, name)), nl=False)


@divergent.command()
@click.argument("name")
@click.option("--check/--no-check", help="Change nothing; show what would be published.")
@json_option
@configured
def reinject(source: Source, name: str, check: bool, as_json: bool) -> None:
    """Publish the messages of the group NAME again, with their ids, at the daemon of DIR, which must lead.

    NAME may also be a file that was copied from another node. Clients whose requests got no answer mostly send them
    again: what the journal has by then is passed over, so that nothing comes twice, and you may repeat this. Not
    repeated is what concerns other messages: an `acked` that nobody was answered. The group stays until you drop it.
    """
    from ..maintenance.reinject import reinject as publish_again

    lines = Path(name).read_bytes().splitlines(keepends=True) if Path(name).is_file() else _group(source, name)
    done = publish_again(source.load_root("reinject into"), lines, name, check)
    if as_json:
        shown = {"published": done.published, "known": done.known, "left": done.left}
        click.echo(json.dumps({"ok": True, "checked": check, **shown}))
        return
    what = "would be published" if check else "published"
    click.echo(f"{counted(done.published, 'message')} {what}; {done.known} the cluster has already")
    if done.left:
        click.echo(f"not repeated: {', '.join(f'{count} {type_}' for type_, count in done.left.items())}")


@divergent.command()
@click.argument("name")
@configured
def drop(source: Source, name: str) -> None:
    """Delete the group NAME for good. Never do so before you have looked at it: no other node has it."""
    _group(source, name)
    _directory(source).drop(name)
    click.echo(f"{name} is deleted")


def _directory(source: Source) -> Any:
    from ..platform.files import Files
    from ..root.divergent import Divergent

    return Divergent(source.load_root("show").settings.journal_root, Files())


def _groups(source: Source) -> dict[str, list[bytes]]:
    directory = _directory(source)
    return {name: directory.lines(name) for name in directory.names()}


def _group(source: Source, name: str) -> list[bytes]:
    groups = _groups(source)
    if name not in groups:
        raise PostroomError(f"there is no group {name}: see postroomd divergent list")
    return groups[name]


def _described(name: str, lines: list[bytes]) -> dict[str, Any]:
    events = [decode_event(line) for line in lines]
    types: dict[str, int] = {}
    for event in events:
        types[event["type"]] = types.get(event["type"], 0) + 1
    return {"name": name, "first": events[0]["id"], "last": events[-1]["id"], "types": types}
