"""Watches a landing directory and takes in the files whose content is new."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from postroom_common.stop_flag import StopFlag

from ..bronze import inventory
from ..bronze.rejects import RETRYABLE
from ..errors import EnvironmentProblem, PipelineError, one_line
from ..spark.connect import is_connect
from ..spark.location import storage_of
from ..spark.runlog import Progress, logged_run
from ..spark.warehouse import Warehouse
from .ingest import ingest

#: How often every file is hashed even if the listing is unchanged: a file may have got other bytes and kept its length
#: and time.
FULL_LOOK_EVERY_S: Final = 3_600
#: Errors that may be temporary: another round may succeed.
PASSING: Final = (PipelineError, Py4JError, PySparkException, OSError)


class Follower:
    """One landing directory and its tables. All progress is stored in these tables."""

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
        """:param reports: rebuild the reports whenever something was taken in."""
        self._session = session
        self._landing = landing
        self._warehouse = warehouse
        self._progress = progress
        self._reports = reports
        self._clock = clock
        self._arguments: Mapping[str, object] = {"in": landing, "out": warehouse.storage.location, "reports": reports}
        #: The digest of the listing when every file in it was settled.
        self._settled: Row | None = None
        self._full_look_s = 0.0

    def round(self) -> None:
        """Take in everything that is there. No file is opened if the listing has not changed since all was settled.

        :raises EnvironmentProblem: the directory does not exist.
        :raises Occupied: another run is writing.
        """
        listing = self._listing()
        begun = self._clock()
        if listing == self._settled and begun < self._full_look_s + FULL_LOOK_EVERY_S:
            return
        self._settled = None
        with (
            self._warehouse.writing("follow"),
            logged_run(self._session, self._warehouse, "follow", self._arguments, self._progress) as run,
        ):
            ingest(self._session, self._landing, self._warehouse, run, reports=self._reports)
        self._full_look_s = begun
        if not any(run.rejects[reason] for reason in RETRYABLE):
            self._settled = listing

    def run(self, every_s: int, ended: StopFlag) -> None:
        """Do a round every ``every_s`` seconds until the flag is set; the current round is finished first.

        Temporary errors are shown, and the next round tries again. In the first round, or if Spark has stopped, they
        are raised.
        """
        due_s, is_first = self._clock(), True
        while not ended.is_set():
            try:
                self.round()
            except PASSING as error:
                if is_first or not self._is_alive():
                    raise
                self._progress.say(f"follow: {one_line(error)}; next try in {every_s} s")
            is_first = False
            due_s = max(due_s + every_s, self._clock())
            ended.wait(due_s - self._clock())

    def _listing(self) -> Row | None:
        """A digest of the listing: it changes when a file is added or deleted, or its length or time changes."""
        if not storage_of(self._session, self._landing).exists(self._landing):
            raise EnvironmentProblem(f"{self._landing}: there is no such directory")
        files = inventory.names(inventory.listed(self._session, self._landing))
        return files.agg(F.count("*"), F.bit_xor(F.xxhash64("file", "length", "mtime_ms"))).first()

    def _is_alive(self) -> bool:
        """Whether Spark still runs, so that another round can be tried."""
        try:
            if is_connect(self._session):
                return bool(self._session.conf.get("spark.sql.session.timeZone"))
            return not self._session.sparkContext._jsc.sc().isStopped()
        except (Py4JError, PySparkException, OSError, AttributeError):
            return False
