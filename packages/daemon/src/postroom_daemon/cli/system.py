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
    help="What DIR is meant for (default: as it looks; several users where it belongs to the user postroom).",
)
@json_option
@configured
def check_permissions(source: Source, several_users: bool | None, as_json: bool) -> None:
    """Tell what is wrong with users, owners and modes of DIR, and how to mend it.

    Directories that are not as they should be, directories above that others could exchange, files that the daemon
    cannot change, and boxes of clients that it cannot put answers in. Changes nothing. Run it as root, who sees all.

    Exit codes: 0 as it should be, 1 could not be checked, 2 wrong use or configuration, 3 something is wrong.
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
        click.echo(f"{len(findings) or 'nothing'} wrong with this root for {kind.replace('-', ' ')}")
    raise SystemExit(FAULTS_FOUND if findings else 0)


@click.command("add-client")
@click.argument("client_id", metavar="ID")
@click.option("--user", required=True, help="User of the client, by name or number.")
@json_option
@configured
def add_client(source: Source, client_id: str, user: str, as_json: bool) -> None:
    """Make the box of client ID in DIR, for a client of another user that cannot make it so itself.

    Such are the tools of the C++ system under the umask 022, which make boxes that the daemon cannot put answers in. A
    client with a box of its own has it mended. The id is the user's from then on. Run it as root.
    """
    from ..maintenance.system.layout import user_id
    from ..maintenance.system.response_dirs import add_box

    config = source.load_root("add a client to")
    made = add_box(config, client_id, user_id(user))
    path = config.settings.ipc_root / config.settings.ipc_responses_dir / client_id
    if as_json:
        click.echo(json.dumps({"ok": True, "made": made, "path": str(path)}))
    else:
        click.echo(f"{'made' if made else 'was there'}: {path}, of {user}")
