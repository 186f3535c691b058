"""The command that mirrors the tables in a shared lake: ``mirror``."""

from __future__ import annotations

import time

import click

from ..errors import UsageError


@click.command()
@click.option("--from", "tables", required=True, metavar="DIR", help="The directory of the tables.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="LOCATION",
    help="Where the lake's tables are. For delta: a directory, or s3://…; for iceberg: CATALOG.NAMESPACE.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["delta", "iceberg"]),
    default="delta",
    show_default=True,
    help="The format of the lake's tables.",
)
@click.option("--only", multiple=True, metavar="TABLE", help="Mirror only this table; can be repeated.")
def mirror(tables: str, target: str, form: str, only: tuple[str, ...]) -> None:
    """Keep a copy of the tables in a shared lake, as tables with versions. Needs neither Java nor Spark.

    Each table whose files have changed since the last time gets a new version, in one commit: readers see the old rows
    or the new ones. Only new files are copied, as they are. The commit names the run that made them. If nothing has
    changed, nothing is written. Repeat the command after it was killed.

    Needs the extra postroom-pipeline[delta] or postroom-pipeline[iceberg].
    """
    from ..lake.delta import DeltaLake
    from ..lake.iceberg import IcebergLake
    from ..lake.listing import TABLES
    from ..lake.mirror import mirror as bring

    if unknown := sorted({*only} - {*TABLES}):
        raise UsageError(f"there is no table {', '.join(unknown)}; the tables are {', '.join(sorted(TABLES))}")
    begun = time.monotonic()
    changed = copied = 0
    lake = DeltaLake(target) if form == "delta" else IcebergLake(target)
    for one in bring(tables, lake, frozenset(only)):
        changed += 1
        copied += one.bytes
        click.echo(one.described)
    done = f"{changed:,} tables changed, {copied:,} bytes copied" if changed else "nothing is new"
    click.echo(f"mirror: {done}, {time.monotonic() - begun:.1f} s", err=True)
