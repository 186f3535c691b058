"""Brings the tables of a shared lake up to date: each that has changed, in one commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ..errors import EnvironmentProblem, PipelineError
from ..spark.arrow_storage import ArrowStorage
from ..spark.runlog import RUNS
from .listing import Files, Listed, listed

#: How often the tables are listed: once, and again after each time that they have changed meanwhile.
_TRIES: Final = 3
_OF_RUN: Final = ("run", "command", "status", "started_ms", "version")


class Overtaken(PipelineError):
    """The tables, or those of the lake, have changed since they were listed."""


@dataclass(frozen=True)
class Version:
    """The run whose tables are mirrored."""

    id: str = ""
    command: str = ""
    started_ms: int = 0
    program: str = ""

    @property
    def described(self) -> Mapping[str, str]:
        """What a commit says of it."""
        started = dt.datetime.fromtimestamp(self.started_ms / 1000, dt.UTC).isoformat(timespec="seconds")
        return {
            "postroom.run": self.id,
            "postroom.command": self.command,
            "postroom.started": started,
            "postroom.version": self.program,
        }


@dataclass(frozen=True)
class Changed:
    """A table that was brought up to date."""

    table: str
    #: The lake's version of the table.
    version: int | str
    added: int
    removed: int
    #: How many bytes were copied.
    bytes: int

    @property
    def described(self) -> str:
        """One line for people."""
        return (
            f"{self.table}: version {self.version}, {self.added:,} files added, {self.removed:,} removed,"
            f" {self.bytes:,} bytes"
        )


class Lake(Protocol):
    """Where the tables of a lake are, in one of its formats."""

    def replace(self, source: ArrowStorage, listed: Listed, version: Callable[[], Version]) -> Changed | None:
        """Make a table's files the content of the lake's table, in one commit; None if they are already.

        :raises Overtaken: a file was replaced meanwhile, or somebody else has committed.
        """


def mirror(location: str, lake: Lake, names: frozenset[str] = frozenset()) -> Iterator[Changed]:
    """Bring the tables of a lake up to date; yields each that has changed.

    :param names: which tables; all if there is none.
    :raises Occupied: a run writes the tables.
    :raises EnvironmentProblem: there are no tables, or they have changed in every try.
    """
    source = ArrowStorage(location)
    for _ in range(_TRIES):
        tables = listed(source, names, "mirror")
        runs = next((one.files for one in tables if one.table is RUNS), None)
        run = _last_run(source, runs)
        try:
            for one in tables:
                if (changed := lake.replace(source, one, run)) is not None:
                    yield changed
            return
        except Overtaken as overtaken:
            last = overtaken
    raise EnvironmentProblem(f"the tables have changed in each of {_TRIES} tries, run mirror again later: {last}")


def _last_run(source: ArrowStorage, files: Files | None) -> Callable[[], Version]:
    """Reads the last run that was completed, when somebody asks first."""
    found: list[Version] = []

    def read() -> Version:
        if not found:
            paths = [source.join(RUNS.name, path) for path in files or source.sizes_below(source.join(RUNS.name))]
            done = (row for row in source.rows(paths, [*_OF_RUN]) if row["status"] == "done")
            versions = (Version(row["run"], row["command"], row["started_ms"], row["version"]) for row in done)
            found.append(max(versions, key=lambda version: version.started_ms, default=Version()))
        return found[0]

    return read
