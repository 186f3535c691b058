"""The command ``report``; Spark is imported only when it runs."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from ..errors import UsageError
from ..options import spark_options


@click.command()
@click.option("--from", "tables", required=True, metavar="DIR", help="The place of the tables.")
@click.option("--out", "target", required=True, metavar="DIR", help="Where to write; files of the same names go.")
@click.option("--device", default="", metavar="ID", help="Of one device alone.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="From this day on (UTC): 2026-11-28.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="Up to this day, itself included.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "csv", "json"]),
    default="html",
    show_default=True,
    help="Pages for a browser, or each report as a file, whole.",
)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=50, show_default=True, help="Rows that a part of a page shows."
)
@spark_options
def report(
    tables: str,
    target: str,
    device: str,
    since: datetime | None,
    until: datetime | None,
    form: str,
    top: int,
    given: dict[str, str],
) -> None:
    """Make a report for people: a page of the fleet and one of each device, or the tables as CSV or JSON.

    The pages need no network: what is wrong stands first, with the numbers that say so and what to do. They need the
    extra postroom-pipeline[report]. Nothing is computed but what the tables hold.
    """
    from ..io import Warehouse
    from ..progress import Progress
    from ..small import is_small
    from ..spark import session
    from .job import report as make
    from .scope import Scope

    days = [day and day.date() for day in (since, until)]
    if since and until and until < since:
        raise UsageError("--until is before --since")
    with session("postroom-pipeline report", given, small=is_small(tables)) as started:
        warehouse = Warehouse(started, tables)
        click.echo(make(started, warehouse, target, Scope(device, *days), form, top, Progress(started, sys.stderr)))
