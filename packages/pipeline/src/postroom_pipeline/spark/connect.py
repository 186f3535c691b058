"""Sessions of Spark Connect: Spark runs in a server, and this process only sends it plans. No Java is needed here."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ..errors import EnvironmentProblem, UsageError, one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's own names for the address of a server: a setting, and a variable.
REMOTE: Final = "spark.remote"
_VARIABLE: Final = "SPARK_REMOTE"
_SCHEME: Final = "sc://"
_PORT: Final = 15002
_ANSWERS_WITHIN_S: Final = 10
_MEMORY: Final = ("spark.executor.memory", "spark.driver.memory")
_DEFAULT_MEMORY: Final = "1g"
_SIZE: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)


def remote_of(given: Mapping[str, str] | None) -> str:
    """The address of the server that the user wants to use; empty if Spark is to run here."""
    return (given or {}).get(REMOTE) or os.environ.get(_VARIABLE, "")


def connect(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """A new session of a server.

    :raises UsageError: the address is none.
    :raises EnvironmentProblem: packages are missing, or the server does not answer, or it refuses a setting.
    """
    host, port = _place(remote)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        _check_answers(host, port)
        started = SparkSession.builder.remote(remote).create()
        started.conf.get("spark.sql.session.timeZone")  # the server is asked for the first time
    except ImportError as error:
        mend = "pip install 'postroom-pipeline[connect]', which has what it needs"
        raise EnvironmentProblem(f"there is no client of Spark Connect ({one_line(error)}); {mend}") from None
    except (OSError, PySparkException) as error:
        raise EnvironmentProblem(f"{remote}: no server of Spark Connect answers: {one_line(error)}") from error
    for name, value in settings.items():
        try:
            started.conf.set(name, value)
        except PySparkException as error:
            started.stop()
            raise EnvironmentProblem(f"{remote} refuses the setting {name}: {one_line(error)}") from error
    return started


def _place(remote: str) -> tuple[str, int]:
    """Host and port of an address."""
    try:
        place = urlsplit(remote)
        host, port = place.hostname, place.port or _PORT
    except ValueError:  # a port that is no number
        host, port = None, 0
    if not remote.startswith(_SCHEME) or not host:
        raise UsageError(f"{REMOTE} is {remote}; it must be the address of a server, {_SCHEME}HOST:PORT")
    return host, port


def _check_answers(host: str, port: int) -> None:
    """Raise ``OSError`` if nobody listens there: PySpark would try for minutes."""
    with socket.create_connection((host, port), timeout=_ANSWERS_WITHIN_S):
        pass


def is_connect(session: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def memory_bytes(session: SparkSession) -> int:
    """The heap of each Java process that runs tasks, as far as the server's settings tell."""
    texts = (session.conf.get(name, "") for name in _MEMORY)
    match = _SIZE.fullmatch(next((text for text in texts if text), _DEFAULT_MEMORY))
    return int(match[1]) << 10 * "bkmgt".index(match[2].lower() or "b") if match else 1 << 30
