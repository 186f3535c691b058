"""The command ``compact``."""

from __future__ import annotations

import sys

import click

from ..errors import EXIT_FAILED, EnvironmentProblem
from ..options import Size, spark_options


@click.command()
@click.option("--out", "tables", required=True, metavar="DIR", help="The place of the tables.")
@click.option(
    "--size",
    default="128MB",
    show_default=True,
    metavar="SIZE",
    type=Size("1MB", "1G"),
    help="About so large a file shall be, 64MB to 256MB are good; a day that has less is one file.",
)
@click.option(
    "--drop-bronze",
    is_flag=True,
    help="Drop the lines of batches whose files are settled. The text of broken lines, and what a new build of the"
    " tables could start from, is then in the snapshot files alone.",
)
@spark_options
def compact(tables: str, size: int, drop_bronze: bool, given: dict[str, str]) -> None:
    """Make few large files of the many small ones of the tables, each in the order of its key; rows stay as they are.

    What is well is passed over, so a second run does nothing. A partition is exchanged as a whole, with renames, when
    all of its rows are written anew; a kill leaves the old files or the new ones. Readers that listed the old files
    have to begin again.

    Ends with 1 where files cannot be read; these are left as they are.
    """
    from ..io import Warehouse
    from ..progress import Progress
    from ..runlog import logged_run
    from ..spark import session
    from .job import compact as make_few

    faults = found = 0
    with session("postroom-pipeline compact", given) as started:
        warehouse = Warehouse(started, tables)
        if not warehouse.storage.exists(warehouse.storage.location):
            raise EnvironmentProblem(f"{tables}: there is no such directory")
        asked = {"out": tables, "size": size, "drop_bronze": drop_bronze}
        with (
            warehouse.writing("compact"),
            logged_run(started, warehouse, "compact", asked, Progress(started, sys.stderr)) as run,
        ):
            for done in make_few(warehouse, run, size, drop_bronze=drop_bronze):
                found += 1
                faults += bool(done.fault)
                click.echo(done.described)
    if not found:
        click.echo("nothing to do")
    sys.exit(EXIT_FAILED if faults else 0)
