"""``postroomd check-permissions`` and ``postroomd add-client``."""

from __future__ import annotations

import json

import click

from .options import Source, configured, json_option
from .verify import FAULTS_FOUND


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
        found = [finding.to_json() for finding in findings]
        click.echo(json.dumps({"ok": not findings, "setUp": kind, "findings": found}))
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
