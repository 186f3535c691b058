"""The command ``postroomd``. The engine is imported only by the commands that run it."""

from __future__ import annotations

import errno
import json
import logging
import os
from functools import partial
from importlib.metadata import version as installed_version
from typing import Any, Final

import click

from postroom_common.errors import ConfigurationError, PostroomError
from postroom_common.policy import Policy
from postroom_common.protocol import PROTOCOL_VERSION, queue_name_problem

from ..config.config import Config
from ..config.settings import SETTINGS
from ..platform.accounts import user_name
from ..platform.logs import set_up, set_up_plain
from .access import access, rules_lines
from .backup import backup_command, restore
from .divergent import divergent
from .local import LOCAL_COMMANDS, always_json_option
from .options import Source, configured, counted, json_option
from .system import add_client, check_permissions, init, make_directories
from .transfer import export_command, import_command, migrate
from .verify import repair, verify

_PACKAGES: Final = {"postroomd": "postroom-daemon", "postroom-common": "postroom-common"}

#: The policy key whose value may fill a page.
_LONG_KEY: Final = "validation.schema"

_log = logging.getLogger(__name__)


def exit_code(error: Exception) -> int:
    """The exit code for an error: 2 for an invalid configuration, else 1."""
    return 2 if isinstance(error, ConfigurationError) else 1


def refusal(error: OSError) -> str:
    """An error of the system as text: which file, why, and to which user if that matters."""
    if not error.filename or not error.strerror:
        return str(error)
    path = os.fsdecode(error.filename)
    if error.errno == errno.ENOENT and not os.path.isdir(os.path.dirname(path) or "."):
        return f"{os.path.dirname(path)} does not exist: create it first, or name another place"
    to_whom = (
        f" to the user {user_name(os.geteuid()) or os.geteuid()}" if error.errno in (errno.EACCES, errno.EPERM) else ""
    )
    return f"{path}: {error.strerror}{to_whom}"


class Commands(click.Group):
    """A group that ends with one line and exit code 2 for an invalid configuration, 1 for any other expected error."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PostroomError as error:
            click.echo(f"postroomd: {error}", err=True)
            ctx.exit(exit_code(error))
        except OSError as error:
            if error.errno == errno.EPIPE:  # nobody reads the output any more: click ends for that without a word
                raise
            click.echo(f"postroomd: {refusal(error)}", err=True)
            ctx.exit(1)


def versions() -> dict[str, str]:
    """The versions of program, library and protocol, by name."""
    installed = {name: installed_version(package) for name, package in _PACKAGES.items()}
    return installed | {"protocol": str(PROTOCOL_VERSION)}


def _versions_text() -> str:
    return "\n".join(f"{name} {number}" for name, number in versions().items())


def _show_versions(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(_versions_text())
        context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of program and protocol and exit.",
)
def main() -> None:
    """The Postroom daemon: durable message queues for one device, served through a mailbox directory.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; for verify, repair and check-permissions also 3
    faults, for local also 4 nothing to consume.
    """


@main.command()
@click.option(
    "--test-clock",
    "driver_fd",
    type=click.IntRange(3),
    metavar="FD",
    help="For tests and simulations only: a program at the other end of this socket controls the time.",
)
@configured
def run(source: Source, driver_fd: int | None) -> None:
    """Serve the mailbox of DIR until SIGTERM or SIGINT.

    Creates DIR if it does not exist. Every setting has a flag: see --help-settings.
    """
    config = source.load_to_run()
    make_directories(config.root)
    form = set_up(config.settings)
    _log.info("postroomd %s, pid %d, root %s", versions()["postroomd"], os.getpid(), config.root)
    from ..maintenance.system.permissions import permission_warnings

    for warning in (*config.warnings, *permission_warnings(config)):
        _log.warning("%s", warning)
    try:
        raise SystemExit(_serve(source, config, driver_fd))
    except Exception as error:
        is_expected = isinstance(error, PostroomError | OSError)
        if is_expected and form == "text":
            raise
        # A program that reads the log also sees there why the daemon ended.
        text = refusal(error) if isinstance(error, OSError) else str(error) if is_expected else repr(error)
        _log.critical("%s", text, exc_info=not is_expected)
        raise SystemExit(exit_code(error)) from None


def _serve(source: Source, config: Config, driver_fd: int | None) -> int:
    from ..service.loop import serve

    if driver_fd is None:
        return serve(config, source.load_to_run)
    from ..platform.simulated_clock import Driver

    driver = Driver(driver_fd)
    _log.warning("a test clock: a program controls the time, which is for tests and simulations only")
    return serve(config, source.load_to_run, driver.clock)


@main.command("check-config")
@json_option
@click.option("--quiet", is_flag=True, help="Show only problems.")
@click.option("--queue", metavar="NAME", help="Show the policy of this queue, and where each key comes from.")
@configured
def check_config(source: Source, as_json: bool, quiet: bool, queue: str | None) -> None:
    """Show the configuration.

    Shows the value and source of every setting, the policies of the configured queues, and all warnings. Changes
    nothing. Exits with 2 if `run` would refuse the configuration.

    With --queue: the policy of one queue according to the configuration, without what was set at run time.
    """
    problem = queue_name_problem(queue) if queue is not None else None
    if problem:
        raise click.UsageError(f"--queue: {problem}")
    try:
        config = source.load_to_run()
    except ConfigurationError as error:
        if as_json:
            click.echo(json.dumps({"ok": False, "error": str(error)}))
            raise SystemExit(2) from None
        raise
    if quiet:
        for text in config.warnings:
            click.echo(f"warning: {text}", err=True)
    elif queue is not None:
        _show_policy(config, queue, as_json)
    elif as_json:
        click.echo(json.dumps({"ok": True, **_described(config)}))
    else:
        click.echo("\n".join(_described_lines(config)))


@main.command()
@json_option
def version(as_json: bool) -> None:
    """Show the versions of program and protocol."""
    if as_json:
        click.echo(json.dumps({"ok": True, **versions(), "protocol": PROTOCOL_VERSION}))
    else:
        click.echo(_versions_text())


@main.group(commands=LOCAL_COMMANDS)
@always_json_option
@partial(configured, root_required=False)
@click.pass_context
def local(context: click.Context, source: Source) -> None:
    """Execute one command on DIR. Stop the daemon first.

    Prints one JSON object. --root may also follow the command. move, purge, reprocess and drop-dlq process all
    matching messages, or with --limit one page.

    Exit codes: 0 done, 1 refused, 2 wrong usage, 4 nothing to consume.
    """
    set_up_plain("warning")
    context.obj = source


@main.command("accept-loss")
@json_option
@configured
def accept_loss(source: Source, as_json: bool) -> None:
    """Accept that events or messages of DIR are lost. Stop the daemon first.

    After damage, `health` reports "degraded" until the loss is accepted, because messages may be missing. The journal
    records that it was accepted, and when. Nothing else is changed. Never begin with this: make a backup, and run
    `verify` first.
    """
    set_up_plain("warning")
    from ..maintenance.local import open_local
    from ..model.facts import damage_text

    with open_local(source.load_root("accept")) as opened:
        damage = opened.damage()
        losses = opened.accept_losses()
    if as_json:
        click.echo(json.dumps({"ok": True, "ranges": losses} | ({"damage": damage} if damage else {})))
        return
    for first, last in losses:
        click.echo(f"events {first} to {last} are lost")
    for one in damage:
        click.echo(damage_text(one))
    click.echo(
        "accepted: health does not report them any more"
        if losses or damage
        else "there is nothing to accept: the store has seen every event that is missing"
    )


main.add_command(access)
main.add_command(init)
main.add_command(check_permissions)
main.add_command(add_client)
main.add_command(migrate)
main.add_command(verify)
main.add_command(repair)
main.add_command(export_command)
main.add_command(import_command)
main.add_command(backup_command(versions))
main.add_command(restore)
main.add_command(divergent)


def _show_policy(config: Config, queue: str, as_json: bool) -> None:
    from ..policy.policies import Policies

    explanation = Policies(config.defaults, config.queues, config.patterns).explain(queue, {})
    if as_json:
        click.echo(json.dumps({"ok": True, "queue": queue, "explanation": explanation}))
        return
    values = {key: json.dumps(one["value"]) for key, one in explanation.items()}
    widths = max(map(len, values)), max(len(value) for key, value in values.items() if key != _LONG_KEY)
    for key, one in explanation.items():
        place = next((json.dumps(one[word], ensure_ascii=False) for word in ("pattern", "name") if word in one), "")
        click.echo(f"{key:{widths[0]}}  {values[key]:{widths[1]}}  {one['layer']} {place}".rstrip())


def _described(config: Config) -> dict[str, Any]:
    from ..policy.policies import Policies

    policies = Policies(config.defaults, config.queues, config.patterns)
    values = config.values().items()
    patterns = {one.text: Policy.from_layers(config.defaults, one.policy) for one in config.patterns}
    return {
        "root": str(config.root),
        "file": str(config.file) if config.file else None,
        "settings": {key: {"value": value, "source": config.sources[key]} for key, value in values},
        "policyDefaults": Policy.from_layers(config.defaults).to_wire(),
        "queues": {name: {"policy": policies.effective(name, None).to_wire()} for name in config.queues},
        "patterns": {text: {"policy": policy.to_wire()} for text, policy in patterns.items()},
        **config.access.to_wire(),
        "quotas": [one.to_wire() for one in config.quotas],
        "warnings": list(config.warnings),
    }


def _described_lines(config: Config) -> list[str]:
    shown = _described(config)
    lines = [f"root {shown['root']}", f"file {shown['file'] or 'none'}", ""]
    width = max(len(key) for key in SETTINGS)
    for key, entry in shown["settings"].items():
        lines.append(f"{key:{width}}  {json.dumps(entry['value'])}  ({entry['source']})")
    lines += ["", f"policyDefaults  {json.dumps(shown['policyDefaults'])}"]
    lines += [f"queue {name}  {json.dumps(entry['policy'])}" for name, entry in shown["queues"].items()]
    lines += [f"pattern {text}  {json.dumps(entry['policy'])}" for text, entry in shown["patterns"].items()]
    return [
        *lines,
        "",
        *rules_lines(config.access),
        *(f"quotas  {json.dumps(one, ensure_ascii=False)}" for one in shown["quotas"]),
        "",
        *(f"warning: {text}" for text in config.warnings),
        f"{counted(len(config.warnings), 'warning')}, no errors",
    ]
