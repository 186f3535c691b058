"""Which of the two ways to its files a session has: Hadoop, through Java in this process; or pyarrow, for a session of
Spark Connect, whose Java is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .storage import Storage


def storage_of(session: SparkSession, location: str) -> Storage:
    """The storage of a location.

    :raises EnvironmentProblem: there is no file system for the location, or it does not answer.
    """
    if is_connect(session):
        from .arrow_storage import ArrowStorage

        return ArrowStorage(location)
    from .hadoop_storage import HadoopStorage

    return HadoopStorage(session, location)
