"""The settings that the pipeline gives Spark, as data: documents and ``spark`` take them from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class SparkSetting:
    """One setting of a session, given only where the user gave none."""

    name: str
    value: str = ""
    why: str = ""
    #: Instead of ``value``: this many for each core that the session computes with, and no fewer than ``at_least``.
    per_core: int = 0
    at_least: int = 0

    def value_for(self, cores: int) -> str:
        """What the session gets that computes with so many cores."""
        return str(max(self.at_least, self.per_core * cores)) if self.per_core else self.value

    @property
    def described(self) -> str:
        """The value for people."""
        if not self.per_core:
            return self.value
        many = f"{self.per_core} × cores"
        return f"{many}, at least {self.at_least}" if self.at_least else many


#: Settings of the SQL engine: a session can be given them while it runs.
SPARK_SETTINGS: Final = (
    SparkSetting("spark.sql.session.timeZone", "UTC", "a day is the same day wherever the driver runs"),
    SparkSetting(
        "spark.sql.files.openCostInBytes",
        str(64 * 1024),
        "Spark's own 4 MB make a task of every few small files",
    ),
    SparkSetting("spark.sql.files.maxPartitionBytes", str(32 * 1024 * 1024), "a task's share of a large file"),
    SparkSetting(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
        per_core=2,
        why="many names are listed by a few tasks, not by one each",
    ),
    SparkSetting(
        "spark.sql.shuffle.partitions",
        per_core=2,
        at_least=8,
        why="Spark's own 200 are 200 tasks for a handful of rows; adaptive execution joins what is small",
    ),
    SparkSetting(
        "spark.sql.files.ignoreCorruptFiles",
        "true",
        "one damaged file must not end a run; admission finds what this hides",
    ),
    SparkSetting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "Spark's own INT96 is a trouble to other readers",
    ),
    SparkSetting(
        "spark.sql.sources.fileCompressionFactor",
        "10",
        "rows take so many times their files in memory; by Spark's own 1 a million lines are sent to every task",
    ),
    SparkSetting("spark.sql.parquet.compression.codec", "zstd", "smaller than snappy at about the same cost"),
    SparkSetting(
        "spark.sql.maxConcurrentOutputFileWriters",
        "16",
        "lines go to the files of their kinds as they come; Spark's own way sorts all of them first",
    ),
    SparkSetting(
        "spark.sql.sources.partitionOverwriteMode",
        "dynamic",
        "no write of a few partitions can take the others away",
    ),
)

#: Settings that count only while a session starts.
START_SETTINGS: Final = (
    SparkSetting("spark.ui.showConsoleProgress", "false", "the pipeline shows its own progress"),
    SparkSetting("spark.ui.enabled", "false", "no port is opened that nobody asked for"),
)

#: A run over less is small: it ends before what Java and Spark compile for it has paid.
SMALL_INPUT_BYTES: Final = 4 * 1024 * 1024

#: Instead of Spark's own, for small runs: each plan as it stands, no program generated and compiled for it.
SMALL_SETTINGS: Final = (
    SparkSetting("spark.sql.codegen.wholeStage", "false", "a program for each step takes longer to make than to do"),
    SparkSetting("spark.sql.codegen.factoryMode", "NO_CODEGEN", "the same for each expression"),
    SparkSetting(
        "spark.sql.constraintPropagation.enabled",
        "false",
        "what filters could be added takes longer to find out than it saves",
    ),
)

#: Options of Java for all other runs: its second compiler comes ten times later than by Java's own defaults, so that it
#: compiles what the many lines go through, and not each of some hundred plans.
JAVA_OPTIONS: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

#: Where nobody chose one of Java's collectors: a run is over when it is over, so that what counts is CPU, not pauses.
JAVA_COLLECTOR: Final = "-XX:+UseParallelGC"

#: Options of Java for small runs: the first of its two compilers alone, with as much room as both have.
SMALL_JAVA_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
