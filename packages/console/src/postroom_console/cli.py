"""The command ``postroom-console``."""

from __future__ import annotations

import sys

import click

PLAN = (
    "postroom-console will show the queues, leases and dead letters of one device in a terminal;"
    " this version has no commands yet."
)


@click.command(help=PLAN, epilog="Until then: postroom --help")
@click.version_option(package_name="postroom-console", prog_name="postroom-console")
def main() -> None:
    """Say what this will be; status 2, since nothing that was asked for could be done."""
    click.echo(PLAN, err=True)
    sys.exit(2)
