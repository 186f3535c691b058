"""Looks at a landing directory again and again, and takes in what is new by what it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from ..errors import EnvironmentProblem, PipelineError, said_by
from ..ingest import inventory, refusals
from ..ingest.job import ingest
from ..io import Warehouse
from ..progress import Progress
from ..runlog import logged_run
from ..storage import Storage

#: So often every file is hashed though the directory looks the same: a file may have been given other bytes, and then
#: its former length and time.
FULL_LOOK_EVERY_S: Final = 3_600
#: What may be wrong for a while and then right: another round may succeed.
PASSING: Final = (PipelineError, Py4JError, PySparkException, OSError)


class Follower:
    """One directory and the tables that it goes into. All that it has to remember lies in these tables."""

    def __init__(
        self,
        session: SparkSession,
        landing: str,
        warehouse: Warehouse,
        progress: Progress,
        *,
        reports: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """:param reports: build the reports anew whenever something was taken in."""
        self._session = session
        self._landing = landing
        self._warehouse = warehouse
        self._progress = progress
        self._reports = reports
        self._clock = clock
        self._asked: Mapping[str, object] = {"in": landing, "out": warehouse.storage.location, "reports": reports}
        #: How the directory looked when all that lay there was settled.
        self._settled: Row | None = None
        self._full_look_s = 0.0

    def round(self) -> None:
        """Take in all that is there; no file is opened if the directory looks as it did when all was settled.

        :raises EnvironmentProblem: there is no such directory.
        :raises Occupied: another run is writing.
        """
        looks = self._look()
        begun = self._clock()
        if looks == self._settled and begun < self._full_look_s + FULL_LOOK_EVERY_S:
            return
        self._settled = None
        with (
            self._warehouse.writing("follow"),
            logged_run(self._session, self._warehouse, "follow", self._asked, self._progress) as run,
        ):
            ingest(self._session, self._landing, self._warehouse, run, reports=self._reports)
        self._full_look_s = begun
        if not any(run.rejects[reason] for reason in refusals.RETRYABLE):
            self._settled = looks

    def run(self, every_s: int, ended: threading.Event) -> None:
        """A round each ``every_s`` seconds until the event is set; the one at hand is finished.

        What goes wrong is told, and tried again in the next round; in the first one, or where Spark is gone, it is
        raised.
        """
        due_s, is_first = self._clock(), True
        while not ended.is_set():
            try:
                self.round()
            except PASSING as error:
                if is_first or not self._is_alive():
                    raise
                self._progress.say(f"follow: {said_by(error)}; it is tried again in {every_s} s")
            is_first = False
            due_s = max(due_s + every_s, self._clock())
            ended.wait(due_s - self._clock())

    def _look(self) -> Row | None:
        """Something that is the same as long as no file comes, goes, or has another length or time."""
        if not Storage(self._session, self._landing).exists(self._landing):
            raise EnvironmentProblem(f"{self._landing}: there is no such directory")
        told = F.xxhash64("file", "length", "mtime_ms")
        named = inventory.names(inventory.listed(self._session, self._landing))
        return named.agg(F.count("*"), F.bit_xor(told)).first()

    def _is_alive(self) -> bool:
        """Whether Spark is there to try again."""
        try:
            return not self._session.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):
            return False
