"""How much room there is for what is read."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def heap_bytes(session: SparkSession) -> int:
    """Of each Java that tasks run in."""
    context = session.sparkContext
    if str(context.master).startswith("local"):
        jvm: Any = context._jvm
        return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return int(context._jsc.sc().executorMemory()) << 20
