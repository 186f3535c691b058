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
    SparkSetting("spark.sql.session.timeZone", "UTC", "a day does not depend on the driver's location"),
    SparkSetting(
        "spark.sql.files.openCostInBytes",
        str(64 * 1024),
        "Spark's default of 4 MB creates a task for every few small files",
    ),
    SparkSetting("spark.sql.files.maxPartitionBytes", str(32 * 1024 * 1024), "share of a large file per task"),
    SparkSetting(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism",
        per_core=2,
        why="a few tasks list many names, instead of one task each",
    ),
    SparkSetting(
        "spark.sql.shuffle.partitions",
        per_core=2,
        at_least=8,
        why="Spark's default of 200 creates 200 tasks for a few rows; adaptive execution merges small ones",
    ),
    SparkSetting(
        "spark.sql.files.ignoreCorruptFiles",
        "true",
        "one damaged file must not end a run; admission detects what this hides",
    ),
    SparkSetting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "other readers have problems with Spark's default INT96",
    ),
    SparkSetting(
        "spark.sql.sources.fileCompressionFactor",
        "10",
        "rows in memory are this much larger than files; the default of 1 sends a million lines to every task",
    ),
    SparkSetting("spark.sql.parquet.compression.codec", "zstd", "smaller than snappy at about the same cost"),
    SparkSetting(
        "spark.sql.maxConcurrentOutputFileWriters",
        "16",
        "lines are written directly to the files of their kinds; by default Spark sorts them first",
    ),
    SparkSetting(
        "spark.sql.sources.partitionOverwriteMode",
        "dynamic",
        "writing a few partitions must not remove the others",
    ),
)

#: Settings that have an effect only when a session starts.
START_SETTINGS: Final = (
    SparkSetting("spark.ui.showConsoleProgress", "false", "the pipeline shows its own progress"),
    SparkSetting("spark.ui.enabled", "false", "no unrequested port is opened"),
    SparkSetting(
        "spark.python.sql.dataFrameDebugging.enabled",
        "false",
        "each call that builds a plan would make four more, to note its line for error messages",
    ),
    SparkSetting("spark.sql.icu.caseMappings.enabled", "false", "the library for all languages takes seconds to load"),
    SparkSetting("spark.sql.ui.explainMode", "simple", "Spark describes each plan for its page, again after each step"),
)

#: A run, or a step of a run, over fewer bytes is small: it ends before what Spark compiles for it pays off.
SMALL_INPUT_BYTES: Final = 4 * 1024 * 1024
#: A run over fewer bytes is short: it ends before what Java's second compiler does for it pays off.
SHORT_INPUT_BYTES: Final = 16 * 1024 * 1024

#: Settings for small runs: plans are interpreted; no code is generated and compiled for them.
SMALL_SETTINGS: Final = (
    SparkSetting("spark.sql.codegen.wholeStage", "false", "a program for each step takes longer to make than to do"),
    SparkSetting("spark.sql.codegen.factoryMode", "NO_CODEGEN", "the same for each expression"),
    SparkSetting(
        "spark.sql.subexpressionElimination.enabled",
        "false",
        "without a program, remembering what occurs twice takes longer than computing it again",
    ),
    SparkSetting(
        "spark.sql.constraintPropagation.enabled",
        "false",
        "what filters could be added takes longer to find out than it saves",
    ),
)

#: Settings for small steps and short runs: a stage is one task, because a task has a cost of its own.
SHORT_SETTINGS: Final = (
    SparkSetting(
        "spark.sql.adaptive.enabled", "false", "a plan is prepared once, and not again after each of its stages"
    ),
    SparkSetting("spark.sql.shuffle.partitions", "1", "rows that meet are few"),
    SparkSetting("spark.sql.files.minPartitionNum", "1", "by default, every core reads a part"),
    SparkSetting("spark.sql.leafNodeDefaultParallelism", "1", "the same for rows in memory"),
)

#: A step over fewer bytes is moderate: what its stages show of their rows comes too late to change much.
MODERATE_INPUT_BYTES: Final = 64 * 1024 * 1024

#: Settings for moderate steps. Each stage of a plan would otherwise be a job of its own, and each core would get four
#: tasks.
MODERATE_SETTINGS: Final = (
    SparkSetting(
        "spark.sql.adaptive.enabled", "false", "a plan is prepared once, and not again after each of its stages"
    ),
    SparkSetting("spark.sql.shuffle.partitions", per_core=1, why="a task has a cost of its own"),
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
JAVA_COLLECTOR: Final = ("-XX:+UseParallelGC",)
#: The same for so few cores: two threads that collect together take more CPU than one. Most objects are texts of one
#: line, and garbage soon: the more room there is for new ones, the fewer collections.
JAVA_COLLECTOR_OF_FEW: Final = ("-XX:+UseSerialGC", "-XX:NewRatio=1")
FEW_CORES: Final = 2

#: Java options for short runs: only the first of the two compilers, with the code cache of both.
SHORT_JAVA_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
