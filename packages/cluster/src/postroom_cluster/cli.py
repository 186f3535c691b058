"""The command ``postroom-cluster``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from nats.aio.client import Client

from postroom_common.errors import ConfigurationError, PostroomError
from postroom_common.logs import set_up, set_up_plain

from .config.file import DEFAULT_FILE, load
from .config.settings import Settings

_log = logging.getLogger(__name__)
_PROGRAM: Final = "postroom-cluster"
T = TypeVar("T")


class Commands(click.Group):
    """A group that ends with one line and exit code 2 for an invalid configuration, 1 for any other expected error."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (PostroomError, OSError) as error:
            if ctx.invoked_subcommand == "run":
                _log.critical("%s", error)
            else:
                click.echo(f"{_PROGRAM}: {error}", err=True)
            sys.exit(2 if isinstance(error, ConfigurationError) else 1)


_config = click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_FILE,
    show_default=True,
    metavar="FILE",
    help="The configuration.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("postroom-cluster"), prog_name=_PROGRAM)
def main() -> None:
    """The journal of a Postroom daemon on several machines, through a stream of NATS JetStream."""


@main.command()
@_config
def run(path: Path) -> None:
    """Serve the daemon of this machine as a node of the cluster, until SIGTERM or SIGINT."""
    set_up_plain("info")
    settings = load(path)
    set_up(settings.log, _PROGRAM)
    from .service import run as serve  # so that other commands start fast

    _log.info("%s %s, process %d, configuration %s", _PROGRAM, version("postroom-cluster"), os.getpid(), path)
    _run_loop(serve(settings))
    _log.info("stopped")


def _run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed: it takes a fifth to a third less CPU for a group."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


@main.command("check-config")
@_config
@click.option("--quiet", is_flag=True, help="Print nothing if it is valid.")
def check_config(path: Path, quiet: bool) -> None:
    """Check the configuration. Exit code 2 if it is invalid."""
    from .connection import sign_in

    settings = load(path)
    sign_in(settings.nats)
    if not quiet:
        click.echo(f"{path} is valid: node {settings.cluster.node} of cluster {settings.cluster.name}")


@main.command()
@_config
@click.option(
    "--replicas", type=click.IntRange(1, 5), default=3, show_default=True, help="Servers that store the stream."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(2**20),
    default=2**30,
    show_default=True,
    help="Size of the stream, above which the oldest groups go: a node that was away for longer must be seeded.",
)
@click.option(
    "--no-other-node-leads",
    is_flag=True,
    help="Confirm that no node of this root leads, on another stream, now or later. The servers cannot know that.",
)
def create(path: Path, replicas: int, max_bytes: int, no_other_node_leads: bool) -> None:
    """Create the stream of a new cluster, whose first leader is this node.

    The journal of this node is the beginning of the cluster's. All other nodes begin as copies of it: restore a backup
    of this node on them.
    """
    if not no_other_node_leads:
        raise click.UsageError("make sure that no other node leads, then add --no-other-node-leads")

    async def work(settings: Settings, connection: Client) -> None:
        from .stream import Stream

        stream = Stream(connection, settings.cluster.name, settings.nats.domain)
        if not await stream.create(settings.cluster.node, replicas, max_bytes):
            click.echo(f"the stream {stream.name} exists already: nothing was created")
            return
        click.echo(
            f"created the stream {stream.name} with {replicas} replicas; {settings.cluster.node} will lead first"
        )

    _with_connection(path, work)


@main.command()
@_config
@_json
def status(path: Path, as_json: bool) -> None:
    """Show the nodes of the cluster that answer. Exit code 1 if none of them leads."""
    from .control import ask_all

    nodes = _with_connection(path, lambda settings, connection: ask_all(connection, settings.cluster.name))
    if as_json:
        click.echo(json.dumps(nodes, indent=2))
    else:
        for one in nodes:
            text = one["problem"] or (
                f"follows {one['leader']}" if one["role"] == "following" and one["leader"] else ""
            )
            click.echo(
                f"{one['node']}: {one['role']}, epoch {one['epoch']}, event {one['lastId']}{text and f': {text}'}"
            )
        if not nodes:
            click.echo("no node answers: start postroom-cluster run beside each daemon")
    if not any(one["role"] == "leading" for one in nodes):
        sys.exit(1)


@main.command()
@_config
@_json
@click.option(
    "--group-bytes",
    type=click.IntRange(1),
    default=8 * 2**20,
    show_default=True,
    help="The daemon's limits.groupBytes.",
)
@click.option(
    "--sync-always",
    is_flag=True,
    help="Confirm that all servers have sync_interval: always. Only a user of their system account can read it.",
)
def doctor(path: Path, as_json: bool, group_bytes: int, sync_always: bool) -> None:
    """Check servers, stream and nodes. Exit code 1 if something breaks a promise."""

    async def work(settings: Settings, connection: Client) -> list[Any]:
        from .doctor import examine
        from .stream import Stream

        name = settings.cluster.name
        return await examine(connection, Stream(connection, name, settings.nats.domain), name, group_bytes, sync_always)

    findings = _with_connection(path, work)
    if as_json:
        click.echo(json.dumps([one._asdict() for one in findings], indent=2))
    else:
        for one in findings:
            click.echo(f"{one.level}: {one.name}: {one.text}")
    if any(one.level == "error" for one in findings):
        sys.exit(1)


@main.command()
@_config
def promote(path: Path) -> None:
    """Let this node lead as soon as it has all groups of the stream.

    The leader yields; if it does not, the servers refuse its next append, so that it stops leading. Every request that
    it answered is in the stream.
    """

    async def work(settings: Settings, connection: Client) -> None:
        from .control import promote as ask

        await ask(connection, settings.cluster.name, settings.cluster.node)
        click.echo(f"{settings.cluster.node} will lead; postroom-cluster status shows when")

    _with_connection(path, work)


def _with_connection(path: Path, work: Callable[[Settings, Client], Awaitable[T]]) -> T:
    from .connection import connect

    settings = load(path)

    async def connected() -> T:
        connection = await connect(settings.nats, _PROGRAM)
        try:
            return await work(settings, connection)
        finally:
            await connection.close()

    return asyncio.run(connected())
