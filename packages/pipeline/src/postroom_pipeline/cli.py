"""The command ``postroom-pipeline``."""

from __future__ import annotations

import sys

import click

PLAN = (
    "postroom-pipeline will turn snapshots of many devices into tables and reports with Spark;"
    " this version has no commands yet."
)


@click.command(help=PLAN)
@click.version_option(package_name="postroom-pipeline", prog_name="postroom-pipeline")
def main() -> None:
    """Say what this will be; status 2, since nothing that was asked for could be done."""
    click.echo(PLAN, err=True)
    sys.exit(2)
