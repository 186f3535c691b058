"""The commands that read or write tables with Spark: ``ingest``, ``follow``, ``compact`` and ``report``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import Final

import click

from postroom_common.stop_flag import Handler, StopFlag

from ..errors import EXIT_FAILED, EnvironmentProblem, UsageError
from ..local import reuse
from ..local.settled import is_settled
from .options import Size, Span, landing_option, reports_option, spark_options, tables_option

_EVERY_S: Final = 600
_NOTHING_NEW: Final = "nothing is new"


@click.command()
@landing_option
@tables_option
@reports_option
@spark_options
def ingest(landing: str, tables: str, no_reports: bool, given: dict[str, str]) -> None:
    """Take in the snapshots of a directory whose content is new, and build tables and reports.

    Repeating it changes nothing, whatever the order and the names of the files. What is rejected gets a row in the
    table rejects and does not fail the run.
    """
    from ..jobs.ingest import ingest as take_in
    from ..spark.runlog import Progress, logged_run
    from ..spark.session import few_bytes_in, session
    from ..spark.warehouse import Warehouse

    if is_settled(landing, tables, "ingest", reports=not no_reports):
        click.echo(f"ingest: {_NOTHING_NEW}", err=True)
        return
    with session("postroom-pipeline ingest", given, input_bytes=few_bytes_in(landing)) as started:
        warehouse = Warehouse(started, tables)
        arguments = {"in": landing, "out": tables, "reports": not no_reports}
        with (
            warehouse.writing("ingest"),
            logged_run(started, warehouse, "ingest", arguments, Progress(started, sys.stderr)) as run,
        ):
            take_in(started, landing, warehouse, run, reports=not no_reports)


@click.command()
@landing_option
@tables_option
@click.option("--available-now", is_flag=True, help="Take in what is there, then exit: for cron.")
@click.option("--every", "every_s", metavar="SPAN", type=Span(), help="How often to look: 90s, 10m, 1h. [default: 10m]")
@reports_option
@spark_options
def follow(
    landing: str, tables: str, available_now: bool, every_s: int | None, no_reports: bool, given: dict[str, str]
) -> None:
    """Take in the snapshots of a directory as they arrive, each exactly once, and keep tables and reports up to date.

    A file is new if its content is, whatever its name and age, also if it was rewritten. Files that are being copied
    (a leading dot, .part, .tmp) are ignored until they have their final name. A file that is not complete gets a row in
    the table rejects and does not delay the others. All progress is stored with the tables, so the next run completes
    what a killed one left unfinished.

    SIGTERM makes it exit with 0 after the current round; a second SIGTERM aborts the round.
    """
    if available_now and every_s:
        raise UsageError("--available-now looks once, --every repeatedly: use one of them")
    if available_now and is_settled(landing, tables, "follow", reports=not no_reports):
        click.echo(f"follow: {_NOTHING_NEW}", err=True)
        return
    from ..jobs.follow import Follower
    from ..spark.runlog import Progress
    from ..spark.session import few_bytes_in, session
    from ..spark.warehouse import Warehouse

    few = few_bytes_in(landing) if available_now else None  # a run that stays may meet more later
    named = "postroom-pipeline follow"
    with until_terminated() as ended, session(named, given, input_bytes=few, stays=not available_now) as started:
        follower = Follower(
            started, landing, Warehouse(started, tables), Progress(started, sys.stderr), reports=not no_reports
        )
        if available_now:
            follower.round()
        else:
            follower.run(every_s or _EVERY_S, ended)


@click.command()
@tables_option
@click.option(
    "--size",
    default="128MB",
    show_default=True,
    metavar="SIZE",
    type=Size("1MB", "1G"),
    help="Target size of a file; 64MB to 256MB are good values. A day with less data is one file.",
)
@click.option(
    "--drop-bronze",
    is_flag=True,
    help="Delete the bronze lines of batches whose files are settled. The text of broken lines, and the data from which"
    " tables could be rebuilt, then exist only in the snapshot files.",
)
@spark_options
def compact(tables: str, size: int, drop_bronze: bool, given: dict[str, str]) -> None:
    """Merge the many small files of the tables into a few large ones, sorted by key; rows do not change.

    Partitions whose files are large enough are skipped, so a second run does nothing. A partition is replaced as a
    whole, by renames, after all of its rows are rewritten; a kill leaves the old files or the new ones. Readers that
    have listed the old files have to start over.

    Exits with 1 if files cannot be read; these are left as they are.
    """
    from ..jobs.compact import compact as rewrite
    from ..spark.runlog import Progress, logged_run
    from ..spark.session import session
    from ..spark.warehouse import Warehouse

    faults = results = 0
    with session("postroom-pipeline compact", given) as started:
        warehouse = Warehouse(started, tables)
        if not warehouse.storage.exists(warehouse.storage.location):
            raise EnvironmentProblem(f"{tables}: there is no such directory")
        arguments = {"out": tables, "size": size, "drop_bronze": drop_bronze}
        with (
            warehouse.writing("compact"),
            logged_run(started, warehouse, "compact", arguments, Progress(started, sys.stderr)) as run,
        ):
            for result in rewrite(warehouse, run, size, drop_bronze=drop_bronze):
                results += 1
                faults += bool(result.fault)
                click.echo(result.described)
    if not results:
        click.echo("nothing to do")
    sys.exit(EXIT_FAILED if faults else 0)


@click.command()
@click.option("--from", "tables", required=True, metavar="DIR", help="The directory of the tables.")
@click.option(
    "--out", "target", required=True, metavar="DIR", help="Where to write; files of the same names are replaced."
)
@click.option("--device", default="", metavar="ID", help="Report on this device only.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="First day (UTC): 2026-11-28.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), metavar="DAY", help="Last day, included.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "csv", "json"]),
    default="html",
    show_default=True,
    help="Pages for a browser, or one complete file for each report.",
)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum rows in a section of a page."
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

    The pages need no network. Problems come first, with the numbers that show them and what to do. Pages need the extra
    postroom-pipeline[report]. They show what is in the tables and compute nothing new.
    """
    from ..jobs.report import Scope
    from ..jobs.report import report as make
    from ..spark.runlog import Progress
    from ..spark.session import few_bytes_in, session
    from ..spark.warehouse import Warehouse

    days = [day and day.date() for day in (since, until)]
    if since and until and until < since:
        raise UsageError("--until is before --since")
    ground = reuse.ground_of(tables, {"device": device, "days": days, "form": form, "top": top})
    if ground and (path := reuse.made_of(target, ground)):
        click.echo("report: the tables have not changed since it was made", err=True)
        click.echo(path)
        return
    with session("postroom-pipeline report", given, input_bytes=few_bytes_in(tables)) as started:
        warehouse = Warehouse(started, tables)
        path = make(started, warehouse, target, Scope(device, *days), form, top, Progress(started, sys.stderr))
    if ground:
        reuse.note_made(target, ground, path)
    click.echo(path)


@contextmanager
def until_terminated() -> Iterator[StopFlag]:
    """A flag that SIGTERM sets during the block; a second SIGTERM raises ``KeyboardInterrupt``. So does SIGINT, even
    if the starter ignores it, as a shell does for background jobs of a script: the command runs until it is stopped."""

    def end(number: int, frame: FrameType | None) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    handlers: dict[int, Handler] = {signal.SIGTERM: end, signal.SIGINT: signal.default_int_handler}
    with StopFlag() as ended, ended.handlers(handlers):
        yield ended
