"""The command ``postroom-gateway``."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click

from postroom_common.errors import ConfigurationError, PostroomError
from postroom_common.logs import set_up, set_up_plain

from .config.file import DEFAULT_FILE, is_principal_name, load
from .config.settings import Settings

_log = logging.getLogger(__name__)
_PROGRAM: Final = "postroom-gateway"
#: Random bytes of a token.
_TOKEN_BYTES: Final = 32


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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("postroom-gateway"), prog_name=_PROGRAM)
def main() -> None:
    """Other systems' protocols for the queues of a Postroom daemon on this device."""


@main.command()
@_config
def run(path: Path) -> None:
    """Serve until SIGTERM or SIGINT.

    SIGHUP reads the configuration again: principals, certificates, limits and the log take effect at once, everything
    else at the next start. A stop finishes the answers that are being made.
    """
    set_up_plain("info")
    settings = load(path)
    set_up(settings.log, _PROGRAM)
    from .doors import check  # so that other commands start fast
    from .service import run as serve

    check(settings)
    _log.info("%s %s, process %d, configuration %s", _PROGRAM, version("postroom-gateway"), os.getpid(), path)
    _run_loop(serve(path, settings))
    _log.info("stopped")


@main.command("check-config")
@_config
@click.option("--quiet", is_flag=True, help="Print nothing if it is valid.")
@click.option("--json", "as_json", is_flag=True, help="Print the settings in force as JSON, without secrets.")
def check_config(path: Path, quiet: bool, as_json: bool) -> None:
    """Check the configuration, and print what it says. Exit code 2 if it is invalid."""
    from .doors import check

    settings = load(path)
    check(settings)
    if as_json:
        click.echo(json.dumps(_shown(settings), indent=2))
    elif not quiet:
        click.echo("\n".join([f"{path} is valid", *_lines(settings)]))


@main.command("make-token")
@click.argument("name")
def make_token(name: str) -> None:
    """Make a token for the principal token:NAME. Prints the token, for the client, and the lines for the configuration,
    from which the token cannot be computed."""
    if not is_principal_name(name):
        raise click.BadParameter("expected a name without slashes and control characters", param_hint="NAME")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    click.echo(f"token for the client: {token}", err=True)
    click.echo(f"[principals.{json.dumps(name)}]")
    click.echo(f'token_sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"')


@main.command("export-simplemq")
@_config
@click.option(
    "--to",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="DIRECTORY",
    help="Folder for messages/YYYY-MM-DD/messages.json, created if missing.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given several times.")
@click.option("--principal", default="anonymous:simplemq", show_default=True, help="Whose permissions count.")
def export_simplemq(path: Path, directory: Path, topics: tuple[str, ...], principal: str) -> None:
    """Write the messages of queues as dated files of JSON that a person can read.

    There is a folder for each day (UTC) on which messages were published. Nothing is changed. The principal needs to
    browse the queues. Files of the same days are replaced; those of others stay.
    """
    set_up_plain("warning")
    settings = load(path)
    from .doors import export

    days = asyncio.run(export(settings, principal, topics, directory))
    if not days:
        click.echo(f"no messages that {principal} may browse: nothing was written")
    for day, number in sorted(days.items()):
        click.echo(f"{directory / 'messages' / day / 'messages.json'}: {number} messages")


def _run_loop(work: Any) -> None:
    """Run on uvloop where it is installed: it takes half the CPU of asyncio's own loop."""
    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        pass
    else:
        make = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(work)


def _shown(settings: Settings) -> dict[str, Any]:
    return {
        "daemon": {"socket": str(settings.daemon.socket), "client_id": settings.daemon.client_id},
        "observe": vars(settings.observe),
        "limits": vars(settings.limits),
        "principals": sorted(settings.principals),
        "doors": {name: {**vars(one), "options": dict(one.options)} for name, one in settings.doors.items()},
    }


def _lines(settings: Settings) -> list[str]:
    lines = [f"daemon: {settings.daemon.socket}"]
    for name, door in settings.doors.items():
        tls = "TLS" if door.tls_certificate else "no TLS"
        state = "" if door.enabled else ", not enabled"
        lines.append(
            f"door {name}: {door.dialect} at {door.address} port {door.port}, {tls},"
            f" authentication {door.authentication}{state}"
        )
    if not any(door.enabled for door in settings.doors.values()):
        lines.append("no door is enabled: nobody can use this gateway")
    lines.append(f"principals: {', '.join(sorted(settings.principals)) or 'none'}")
    if settings.observe.enabled:
        lines.append(f"health and metrics: http://{settings.observe.address}:{settings.observe.port}")
    return lines
