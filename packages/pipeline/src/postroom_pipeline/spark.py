"""The session of Spark: one is started here, with the settings of ``config`` where the user gave none.

Nobody else knows how a session comes to be; everything else takes one, or a frame. The master, and how much memory the
driver and the executors get, are the user's: spark-submit, ``spark-defaults.conf`` or the command line say them.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .config import JAVA_COLLECTOR, JAVA_OPTIONS, SMALL_JAVA_OPTIONS, SMALL_SETTINGS, SPARK_SETTINGS, START_SETTINGS
from .errors import EnvironmentProblem, said_by
from .java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Set by spark-submit, which has started Java before us.
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
#: What Spark calls an application that nobody gave a name.
_NOT_NAMED: Final = ("", "pyspark-shell", "run.py")
_CONSOLE_PROGRESS: Final = "spark.ui.showConsoleProgress"
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
#: Java takes options from these too.
_MORE_OPTIONS: Final = ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
_LOG_CONFIGURATION: Final = "log4j2.configurationFile"


@contextmanager
def session(application: str, given: Mapping[str, str] | None = None, *, small: bool = False) -> Iterator[SparkSession]:
    """A session for the time of the block; it is stopped at its end.

    ``given`` are settings of the user's (``spark.master`` among them), which go before those of his files. The time
    zone of this process becomes UTC with it, so that times that are collected do not depend on where the driver runs.

    :param small: little is to be done: the same comes out with less preparation, and would take long with much to do.
    :raises EnvironmentProblem: Java or PySpark is missing, or Spark does not start.
    """
    started = start_session(application, given, small=small)
    try:
        yield started
    finally:
        started.stop()


def start_session(application: str, given: Mapping[str, str] | None = None, *, small: bool = False) -> SparkSession:
    """Start a session; see ``session``."""
    chosen = dict(given or {})
    if _GATEWAY not in os.environ:
        find_java()
        _quieten()
        _add_java_options(*(SMALL_JAVA_OPTIONS if small else JAVA_OPTIONS))
        if not chooses_collector(chosen):
            _add_java_options(JAVA_COLLECTOR)
        chosen.setdefault(_CONSOLE_PROGRESS, "false")  # else Spark turns it on for who is started so
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
        # Java runs from here on: only it knows what spark-submit and the user's files say.
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(chosen.items())))
        conf = SparkConf().setAll(list(chosen.items()))
        if conf.get("spark.app.name", "") in _NOT_NAMED:
            conf.setAppName(application)
        if _GATEWAY not in os.environ and conf.get("spark.master", "local").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is here
        for known in (*START_SETTINGS, *(SMALL_SETTINGS if small else ())):
            conf.setIfMissing(known.name, known.value)
        with _own_interrupt():
            started = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise EnvironmentProblem(f"Spark does not start: {said_by(error)}") from error
    apply_settings(started)
    return started


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """SIGINT does afterwards what it did before: what Spark makes of it calls Java in the midst of another call, and
    tells of that for pages."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def apply_settings(started: SparkSession) -> None:
    """Give a session the settings of ``config`` that nobody gave it before."""
    given = started.conf.getAll
    cores = cores_of(started)
    for known in SPARK_SETTINGS:
        if known.name not in given:
            started.conf.set(known.name, known.value_for(cores))


@contextmanager
def lightly(started: SparkSession) -> Iterator[None]:
    """For the time of the block plans are prepared as those of a small run: for steps over few rows of a large one.
    What the user gave stays."""
    given = started.sparkContext.getConf()
    ours = [known for known in SMALL_SETTINGS if not given.contains(known.name)]
    before = {known.name: str(started.conf.get(known.name)) for known in ours}
    for known in ours:
        started.conf.set(known.name, known.value)
    try:
        yield
    finally:
        for name, value in before.items():
            started.conf.set(name, value)


def cores_of(started: SparkSession) -> int:
    """How many cores the session computes with: those there are, or those that are asked for and still to come."""
    conf = started.sparkContext.getConf()
    executors = int(conf.get("spark.executor.instances", "0") or 0) * int(conf.get("spark.executor.cores", "1") or 1)
    return max(started.sparkContext.defaultParallelism, executors, int(conf.get("spark.cores.max", "0") or 0))


def _quieten() -> None:
    """Let Spark's log tell only what is wrong, where the user has no configuration of it."""
    options = os.environ.get(_JAVA_OPTIONS, "")
    ours = Path(__file__).with_name("log4j2.properties")
    if _LOG_CONFIGURATION in options or not ours.is_file() or any(_files_of_user(ours.name)):
        return
    _add_java_options(f"-D{_LOG_CONFIGURATION}={ours.as_uri()}")


def chooses_collector(given: Mapping[str, str]) -> bool:
    """Whether the user says which collector Java has to use: it does not start with two."""
    said = [*given.values(), *(os.environ.get(name, "") for name in (_JAVA_OPTIONS, *_MORE_OPTIONS))]
    said += [path.read_text(errors="replace") for path in _files_of_user("spark-defaults.conf")]
    return any(_COLLECTOR.search(text) for text in said)


def _files_of_user(name: str) -> Iterator[Path]:
    """The files of that name in the directories of configuration of Spark."""
    places = [os.environ.get("SPARK_CONF_DIR", ""), os.path.join(os.environ.get("SPARK_HOME", ""), "conf")]
    yield from (path for place in places if place and (path := Path(place, name)).is_file())


def _add_java_options(*options: str) -> None:
    """Let Java start with these; what the user says of the driver's options stands behind them, and counts."""
    os.environ[_JAVA_OPTIONS] = " ".join([os.environ.get(_JAVA_OPTIONS, ""), *options]).strip()
