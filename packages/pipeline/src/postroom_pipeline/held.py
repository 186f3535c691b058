"""Frames of few rows that a run uses several times."""

from __future__ import annotations

from pyspark.sql import DataFrame


def held(frame: DataFrame) -> DataFrame:
    """The rows as they are now, computed once, until nobody has the frame any more.

    A cached frame would do the same, but brings its whole plan into every plan that stands on it, which Spark then
    looks through at each step: with few snapshots that takes longer than all work on their lines. Where an executor is
    lost with rows that it held the run fails, and the next one makes it good.
    """
    return frame.localCheckpoint()
