"""Starts the Spark session, with the settings of ``settings`` unless the user chose others.

Everything else takes a session or a data frame. The master, and the memory of driver and executors, are the user's
choice: by spark-submit, ``spark-defaults.conf`` or the command line.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import EnvironmentProblem, one_line
from ..files import local_path
from .compilers import PLANS, PROGRAMS, leave_to_first, left_to_first
from .connect import REMOTE, connect, is_connect, memory_bytes, remote_of
from .java import find_java
from .settings import (
    FEW_CORES,
    JAVA_COLLECTOR,
    JAVA_COLLECTOR_OF_FEW,
    JAVA_OPTIONS,
    MODERATE_INPUT_BYTES,
    MODERATE_SETTINGS,
    SHORT_INPUT_BYTES,
    SHORT_JAVA_OPTIONS,
    SHORT_SETTINGS,
    SMALL_INPUT_BYTES,
    SMALL_SETTINGS,
    SPARK_SETTINGS,
    START_SETTINGS,
    SparkSetting,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Set by spark-submit, which has already started Java.
GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
#: Spark's names for an application without a name.
_NOT_NAMED: Final = ("", "pyspark-shell", "run.py")
_OFTEN_USED: Final = ("functions", "PythonUtils", "PythonSQLUtils")
_CONSOLE_PROGRESS: Final = "spark.ui.showConsoleProgress"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
#: Set in sessions whose Java ends after one run, and leaves to its first compiler what is not worth the second one.
_IS_BRIEF: Final = "spark.postroom.isBrief"
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
#: Other variables from which Java takes options.
_MORE_OPTIONS: Final = ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
#: The settings that each surrounding ``lightly`` has changed, as they were before.
_FULL: Final[list[dict[str, str | None]]] = []
_LOG_CONFIGURATION: Final = "log4j2.configurationFile"


@contextmanager
def session(
    application: str, given: Mapping[str, str] | None = None, *, input_bytes: int | None = None, stays: bool = False
) -> Iterator[SparkSession]:
    """A session for the duration of the block; it is stopped at the end.

    The time zone of this process becomes UTC, so that collected times do not depend on where the driver runs.

    :param given: the user's settings (``spark.master`` among them); they override those of configuration files.
    :param input_bytes: how much is read; None if it is much or unknown. For little, less is prepared. Results are the
        same; large inputs would take longer.
    :param stays: whether it does the same work again and again, for days perhaps: then Java compiles all of it.
    :raises EnvironmentProblem: Java or PySpark is missing, or Spark does not start.
    """
    started = start_session(application, given, input_bytes=input_bytes, stays=stays)
    try:
        yield started
    finally:
        started.stop()


def start_session(
    application: str, given: Mapping[str, str] | None = None, *, input_bytes: int | None = None, stays: bool = False
) -> SparkSession:
    """Start a session; see ``session``. The caller stops it."""
    if remote := remote_of(given):
        return _connected(remote, given or {})
    is_short = input_bytes is not None and input_bytes <= SHORT_INPUT_BYTES
    is_small = input_bytes is not None and input_bytes <= SMALL_INPUT_BYTES
    chosen = dict(given or {})
    if GATEWAY not in os.environ:
        os.environ.update(find_java().variables)
        _quieten()
        _add_java_options(*(SHORT_JAVA_OPTIONS if is_short else JAVA_OPTIONS))
        if not chooses_collector(chosen):
            _add_java_options(*collector_for(os.cpu_count() or 1))
        chosen.setdefault(_CONSOLE_PROGRESS, "false")  # else Spark turns it on for programs started like this
    try:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EnvironmentProblem(f"PySpark cannot be imported ({error}); pip install 'pyspark>=4.1,<5'") from None
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        # Java runs from here on; only Java knows the settings of spark-submit and of the user's files.
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(chosen.items())))
        conf = SparkConf().setAll(list(chosen.items()))
        if conf.get("spark.app.name", "") in _NOT_NAMED:
            conf.setAppName(application)
        if GATEWAY not in os.environ and conf.get("spark.master", "local").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is on the PATH
        for setting in START_SETTINGS:
            conf.setIfMissing(setting.name, setting.value)
        with _own_interrupt():
            started = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise EnvironmentProblem(f"Spark does not start: {one_line(error)}") from error
    apply_settings(started, [*(SMALL_SETTINGS if is_small else ()), *(SHORT_SETTINGS if is_short else ())])
    _look_up_once(started)
    if not is_short and not stays and leave_to_first(started, PLANS):  # a short run has no second compiler
        started.conf.set(_IS_BRIEF, "true")
    return started


def _connected(remote: str, given: Mapping[str, str]) -> SparkSession:
    """A session of a server. Settings for each core stay as they are: the server knows how many it has."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    ours = {setting.name: setting.value for setting in SPARK_SETTINGS if not setting.per_core}
    return connect(remote, {name: value for name, value in {**ours, **given}.items() if name != REMOTE})


def _look_up_once(started: SparkSession) -> None:
    """Remember the Java classes that PySpark uses for every column of a plan: it asks Java for each of them by its
    short name every time, and Java then looks for it in some hundred archives in vain before it knows the long one."""
    jvm: Any = started.sparkContext._jvm
    for name in _OFTEN_USED:
        setattr(jvm, name, getattr(jvm, name))


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Restore the handler of SIGINT: Spark's own one calls Java in the middle of another call, and prints pages."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def apply_settings(started: SparkSession, first: Sequence[SparkSetting] = ()) -> None:
    """Apply ``first``, and then all settings for every run; those that the user set stay."""
    given = {*started.conf.getAll}
    cores = cores_of(started)
    for setting in (*first, *SPARK_SETTINGS):
        if setting.name not in given:
            started.conf.set(setting.name, setting.value_for(cores))
            given.add(setting.name)


@contextmanager
def lightly(started: SparkSession, read_bytes: int = 0) -> Iterator[None]:
    """Prepare plans with less during the block: for the steps of a large run that read little. The user's settings
    stay.

    :param read_bytes: how much is read during the block; if it is much, nothing changes.
    """
    if is_connect(started):
        yield
        return
    given, cores = started.sparkContext.getConf(), cores_of(started)
    light: Sequence[SparkSetting] = ()
    compiling: AbstractContextManager[None] = nullcontext()
    if read_bytes <= SMALL_INPUT_BYTES:
        light = (*SMALL_SETTINGS, *SHORT_SETTINGS)
    elif read_bytes <= MODERATE_INPUT_BYTES and started.conf.get(_ADAPTIVE) == "true":  # a short run has less already
        light = MODERATE_SETTINGS
        if started.conf.get(_IS_BRIEF, None):
            compiling = left_to_first(started, PROGRAMS)
    ours = {setting.name: setting.value_for(cores) for setting in light if not given.contains(setting.name)}
    with _set(started, ours) as before:
        _FULL.append(before)
        try:
            with compiling:
                yield
        finally:
            _FULL.pop()


@contextmanager
def fully(started: SparkSession) -> Iterator[None]:
    """Within ``lightly``: for a step that reads much after all. It has to be executed in the block."""
    with _set(started, _FULL[-1] if _FULL else {}):
        yield


@contextmanager
def _set(started: SparkSession, values: Mapping[str, str | None]) -> Iterator[dict[str, str | None]]:
    """Change settings during the block, which gets those from before. None: Spark's default."""
    before = {name: started.conf.get(name, None) for name in values}
    _put(started, values)
    try:
        yield before
    finally:
        _put(started, before)


def _put(started: SparkSession, values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            started.conf.unset(name)
        else:
            started.conf.set(name, value)


def cores_of(started: SparkSession) -> int:
    """How many cores the session computes with: those that exist, or those that are requested and still to come."""
    conf = started.sparkContext.getConf()
    executors = int(conf.get("spark.executor.instances", "0") or 0) * int(conf.get("spark.executor.cores", "1") or 1)
    return max(started.sparkContext.defaultParallelism, executors, int(conf.get("spark.cores.max", "0") or 0))


def _quieten() -> None:
    """Make Spark log only problems, unless the user has a log configuration."""
    options = os.environ.get(_JAVA_OPTIONS, "")
    ours = Path(__file__).with_name("log4j2.properties")
    if _LOG_CONFIGURATION in options or not ours.is_file() or any(_files_of_user(ours.name)):
        return
    _add_java_options(f"-D{_LOG_CONFIGURATION}={ours.as_uri()}")


def chooses_collector(given: Mapping[str, str]) -> bool:
    """Whether the user chose a garbage collector: Java does not start with two."""
    options = [*given.values(), *(os.environ.get(name, "") for name in (_JAVA_OPTIONS, *_MORE_OPTIONS))]
    options += [path.read_text(errors="replace") for path in _files_of_user("spark-defaults.conf")]
    return any(_COLLECTOR.search(text) for text in options)


def collector_for(cores: int) -> tuple[str, ...]:
    """The Java options that select a garbage collector for so many cores."""
    return JAVA_COLLECTOR_OF_FEW if cores <= FEW_CORES else JAVA_COLLECTOR


def _files_of_user(name: str) -> Iterator[Path]:
    """The files of this name in Spark's configuration directories."""
    places = [os.environ.get("SPARK_CONF_DIR", ""), os.path.join(os.environ.get("SPARK_HOME", ""), "conf")]
    yield from (path for place in places if place and (path := Path(place, name)).is_file())


def _add_java_options(*options: str) -> None:
    """Start Java with these options. The user's own driver options come after them and override them."""
    os.environ[_JAVA_OPTIONS] = " ".join([os.environ.get(_JAVA_OPTIONS, ""), *options]).strip()


def heap_bytes(session: SparkSession) -> int:
    """The heap of each Java process that runs tasks, in bytes."""
    if is_connect(session):
        return memory_bytes(session)
    context = session.sparkContext
    if str(context.master).startswith("local"):
        jvm: Any = context._jvm
        return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return int(context._jsc.sc().executorMemory()) << 20


def materialized(frame: DataFrame) -> DataFrame:
    """The frame with its rows computed now, once; they are freed with the frame. For few rows that are used often.

    A cached frame would do the same, but it keeps its whole plan, which Spark analyses again in every plan that uses
    it: with few snapshots that takes longer than all work on their lines. If an executor is lost with such rows, the
    run fails, and the next one completes it.
    """
    return frame.localCheckpoint()


def frame_of(started: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """A frame of a few rows that this process has. Java reads them as JSON: what ``createDataFrame`` makes of a list
    needs a Python process on every executor."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    if not rows and is_connect(started):
        return started.createDataFrame([], schema)
    if not rows:
        jvm: Any = started.sparkContext._jvm
        types = getattr(jvm, "org.apache.spark.sql.types.DataType").fromJson(schema.json())
        return DataFrame(started._jsparkSession.createDataFrame(jvm.java.util.ArrayList(), types), started)
    text = F.lit(json.dumps([*map(dict, rows)]))
    return started.range(0, 1, 1, 1).select(F.inline(F.from_json(text, ArrayType(schema), {"mode": "FAILFAST"})))


def few_bytes_in(place: str) -> int | None:
    """The bytes of all files below a local directory of snapshots or tables, if they are so few that a run is short.

    Snapshots usually stay in the directory after they were taken in, so the tables made of them are small as well. None
    if there are more, or if their size cannot be determined without Spark.
    """
    path = local_path(place)
    if path is None or not path.is_dir():
        return None
    total = 0
    for size in _sizes(path):
        total += size
        if total > SHORT_INPUT_BYTES:
            return None
    return total


def _sizes(place: Path) -> Iterator[int]:
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                yield os.stat(os.path.join(directory, name)).st_size
            except OSError:  # deleted meanwhile, or a broken link
                continue
