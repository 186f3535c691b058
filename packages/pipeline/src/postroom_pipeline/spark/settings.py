"""The settings that the pipeline gives Spark and Java, as data; the documents show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class SparkSetting:
    """One setting of a session, used only if the user did not set it."""

    name: str
    value: str = ""
    why: str = ""
    #: Instead of ``value``: this many for each core of the session, and at least ``at_least``.
    per_core: int = 0
    at_least: int = 0

    def value_for(self, cores: int) -> str:
        """The value for a session with this many cores."""
        return str(max(self.at_least, self.per_core * cores)) if self.per_core else self.value

    @property
    def described(self) -> str:
        """The value for people."""
        if not self.per_core:
            return self.value
        many = f"{self.per_core} × cores"
        return f"{many}, at least {self.at_least}" if self.at_least else many


#: Settings of the SQL engine, which can be changed while a session runs.
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

#: Settings that have an effect only when a session starts.
START_SETTINGS: Final = (
    SparkSetting("spark.ui.showConsoleProgress", "false", "the pipeline shows its own progress"),
    SparkSetting("spark.ui.enabled", "false", "no port is opened that nobody asked for"),
)

#: A run over fewer bytes is small: it ends before what Java and Spark compile for it pays off.
SMALL_INPUT_BYTES: Final = 4 * 1024 * 1024

#: Settings for small runs: plans are interpreted; no code is generated and compiled for them.
SMALL_SETTINGS: Final = (
    SparkSetting("spark.sql.codegen.wholeStage", "false", "a program for each step takes longer to make than to do"),
    SparkSetting("spark.sql.codegen.factoryMode", "NO_CODEGEN", "the same for each expression"),
    SparkSetting(
        "spark.sql.constraintPropagation.enabled",
        "false",
        "what filters could be added takes longer to find out than it saves",
    ),
)

#: Java options for all other runs: the second compiler starts ten times later than by default, so that it compiles
#: what processes many lines, and not each of some hundred plans.
JAVA_OPTIONS: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

#: The garbage collector, unless the user chose one: in a batch run CPU time matters, pauses do not.
JAVA_COLLECTOR: Final = "-XX:+UseParallelGC"

#: Java options for small runs: only the first of the two compilers, with the code cache of both.
SMALL_JAVA_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
