"""The command ``follow``."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

from ..errors import UsageError
from ..options import Span, reports_option, spark_options

_EVERY_S: Final = 600


@click.command()
@click.option(
    "--in", "landing", required=True, metavar="DIR", help="The directory of the snapshots, with those below it."
)
@click.option("--out", "tables", required=True, metavar="DIR", help="The place of the tables.")
@click.option("--available-now", is_flag=True, help="Take in what is there, and end: for cron.")
@click.option("--every", "every_s", metavar="SPAN", type=Span(), help="Look so often: 90s, 10m, 1h. [default: 10m]")
@reports_option
@spark_options
def follow(
    landing: str, tables: str, available_now: bool, every_s: int | None, no_reports: bool, given: dict[str, str]
) -> None:
    """Take in the snapshots of a directory as they come, each exactly once, and keep tables and reports up to date.

    A file is new by what it holds: whatever its name and however old it is, and also if it was rewritten. What is being
    copied (a name with a dot first, .part, .tmp) is left alone until it has its name; a file that is not whole is a row
    in the table rejects and holds nothing up. All that is remembered lies in the tables, so a run that was killed is
    made good by the next one.

    SIGTERM ends it with 0 after the round at hand; a second one breaks that off.
    """
    if available_now and every_s:
        raise UsageError("--available-now looks once, --every again and again: one of them")
    from ..io import Warehouse
    from ..progress import Progress
    from ..small import is_small
    from ..spark import session
    from .job import Follower

    small = available_now and is_small(landing)  # who stays may meet more later
    with until_told_to_end() as ended, session("postroom-pipeline follow", given, small=small) as started:
        follower = Follower(
            started, landing, Warehouse(started, tables), Progress(started, sys.stderr), reports=not no_reports
        )
        if available_now:
            follower.round()
        else:
            follower.run(every_s or _EVERY_S, ended)


@contextmanager
def until_told_to_end() -> Iterator[threading.Event]:
    """An event that SIGTERM sets for the time of the block; a second one raises ``KeyboardInterrupt``."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
