"""``postroomd init``, ``postroomd check-permissions`` and ``postroomd add-client``."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from postroom_common.errors import PostroomError
from postroom_common.policy import Policy

from ..config.file import CONFIG_NAME
from ..config.settings import SETTINGS
from .options import Source, configured, json_option, root_option
from .verify import FAULTS_FOUND

#: Settings that ``init`` writes into a new configuration file, with their defaults.
INITIAL_KEYS: Final = (
    "schemaVersion",
    "nodeId",
    "backend",
    "ipc.root",
    "sqlite.dbPath",
    "journal.root",
    "journal.durability",
    "traffic.root",
    "log.level",
)
#: The root of a system's daemon.
SYSTEM_ROOT: Final = Path("/var/lib/postroom")


@click.command()
@click.option(
    "--system", is_flag=True, help="Set up this system for clients of several users, as a package would. Run as root."
)
@partial(root_option, required=False)
def init(root: Path | None, system: bool) -> None:
    """Create DIR with a first config.json.

    Its directories get mode 0700; the file gets the main settings with their defaults. An existing config.json is never
    overwritten.

    With --system (DIR is /var/lib/postroom by default): creates users, groups and directories for clients of several
    users, /etc/postroom/config.json, and what starts the daemon: a systemd unit, or a script for OpenRC or runit.
    Existing files stay; run it again to create what is missing.
    """
    if system:
        from ..maintenance.system.setup import set_up

        set_up(root or SYSTEM_ROOT, initial_text(), click.echo)
        return
    if root is None:
        raise click.UsageError("Missing option '--root': name the directory here, or in POSTROOM_ROOT.")
    target = root / CONFIG_NAME
    if target.exists():
        raise PostroomError(f"{target} exists already, and was not changed")
    # Nothing is read from the environment, so that the directories are those that the file names.
    settings = {key: setting.default for key, setting in SETTINGS.items()}
    inside = [settings[key] for key in ("ipc.root", "paths.dataRoot", "journal.root", "traffic.root")]
    mailbox = [settings["ipc.root"] / settings[key] for key in ("ipc.requestsDir", "ipc.responsesDir", "ipc.deadDir")]
    make_directories(root, *(root / path for path in inside + mailbox))
    try:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(initial_text())
    except OSError as error:
        raise PostroomError(f"{target} cannot be written: {error.strerror}") from None
    click.echo(f"created {root}; start the daemon with: postroomd run --root {root}")


def make_directories(*paths: Path) -> None:
    """Create directories that only this user can use. Raises ``PostroomError``."""
    for path in paths:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise PostroomError(f"{path} cannot be created: {error.strerror}") from None


def initial_text() -> str:
    """The text of a new configuration file."""
    tree: dict[str, Any] = {}
    for key in INITIAL_KEYS:
        group, _, name = key.rpartition(".")
        default = SETTINGS[key].default
        (tree.setdefault(group, {}) if group else tree)[name] = f"./{default}" if isinstance(default, Path) else default
    tree |= {"policyDefaults": Policy.from_layers().to_wire(), "queues": []}
    return json.dumps(tree, indent=2) + "\n"


@click.command("check-permissions")
@click.option(
    "--several-users/--one-user",
    default=None,
    help="What DIR is for (default: several users if it belongs to the user postroom, else by its modes).",
)
@json_option
@configured
def check_permissions(source: Source, several_users: bool | None, as_json: bool) -> None:
    """Report problems with users, owners and modes of DIR, and the commands that correct them.

    Checks DIR's directories, directories above it that others could replace, files that the daemon cannot change, and
    response directories into which it cannot write. Changes nothing. Run it as root, who can see everything.

    Exit codes: 0 no problems, 1 could not be checked, 2 wrong usage or configuration, 3 problems found.
    """
    from ..maintenance.system.permissions import Permissions

    permissions = Permissions(source.load_root("check"), several_users)
    findings = list(permissions.findings())
    kind = "several-users" if permissions.several_users else "one-user"
    if as_json:
        click.echo(
            json.dumps({"ok": not findings, "setUp": kind, "findings": [finding.to_json() for finding in findings]})
        )
    else:
        for finding in findings:
            click.echo(finding.text)
        count = "1 problem" if len(findings) == 1 else f"{len(findings) or 'no'} problems"
        click.echo(f"{count} found with this root for {kind.replace('-', ' ')}")
    raise SystemExit(FAULTS_FOUND if findings else 0)


@click.command("add-client")
@click.argument("client_id", metavar="ID")
@click.option("--user", required=True, help="The client's user, by name or number.")
@json_option
@configured
def add_client(source: Source, client_id: str, user: str, as_json: bool) -> None:
    """Create the response directory of client ID in DIR, for a user whose client cannot create a usable one.

    For example, the tools of the C++ system create response directories under umask 022, into which the daemon cannot
    write. Corrects owner and mode if the directory exists. From then on the id belongs to the user. Run it as root.
    """
    from ..maintenance.system.layout import user_id
    from ..maintenance.system.response_dirs import add_response_dir

    config = source.load_root("add a client to")
    made = add_response_dir(config, client_id, user_id(user))
    path = config.settings.ipc_root / config.settings.ipc_responses_dir / client_id
    if as_json:
        click.echo(json.dumps({"ok": True, "made": made, "path": str(path)}))
    else:
        click.echo(f"{'created' if made else 'exists already'}: {path}, for {user}")
