"""``postroomd migrate``."""

from __future__ import annotations

import json

import click

from ..config.settings import BACKENDS
from .options import Source, configured, json_option

_CHOICES = sorted(name for name, backend in BACKENDS.items() if backend != "memory")


@click.command()
@click.option("--to", "target", type=click.Choice(_CHOICES), required=True, help="The new backend.")
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
        kept = [str(path) for path in done.kept]
        click.echo(json.dumps({
            "ok": True, "from": done.old, "to": done.new, "event": done.event, "messages": done.messages,
            "lost": done.lost, "kept": kept,
        }))  # fmt: skip
        return
    click.echo(f"{done.messages} messages moved from {done.old} to {done.new}, as of event {done.event}")
    for key in done.lost:
        click.echo(f"not moved, because its body is lost: {key}")
    for path in done.kept:
        click.echo(f"the old store is {path}")
