"""Finds the Java that Spark would start, and checks its release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import EnvironmentProblem

#: The releases that Spark is tested with by its developers (25 since Spark 4.2).
SUPPORTED: Final = (17, 21, 25)
OLDEST: Final = SUPPORTED[0]
HOW_TO_GET_IT: Final = (
    "install Java 17, 21 or 25 (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one"
)
_TIMEOUT_S: Final = 60


@dataclass(frozen=True)
class Java:
    """An installed Java that runs."""

    path: str
    release: int
    #: Where it was found: ``JAVA_HOME`` or ``PATH``.
    chosen_by: str

    @property
    def is_supported(self) -> bool:
        """Whether Spark is tested with this release."""
        return self.release in SUPPORTED


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark's own scripts choose: ``$JAVA_HOME/bin/java``, else the first ``java`` on the PATH.

    :raises EnvironmentProblem: there is none, it does not run, or it is older than Spark needs.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME", "")
    if home:
        path: str | None = str(Path(home, "bin", "java"))
        chosen_by = "JAVA_HOME"
        if not os.access(str(path), os.X_OK):
            raise EnvironmentProblem(f"JAVA_HOME is {home}, which has no executable bin/java; {HOW_TO_GET_IT}")
    else:
        path = shutil.which("java", path=environment.get("PATH", os.defpath))
        chosen_by = "PATH"
    if path is None:
        raise EnvironmentProblem(f"there is no Java on the PATH, and JAVA_HOME is not set; {HOW_TO_GET_IT}")
    release = _release(path)
    if release < OLDEST:
        raise EnvironmentProblem(f"{path} is Java {release}, too old for Spark; {HOW_TO_GET_IT}")
    return Java(path, release, chosen_by)


def _release(path: str) -> int:
    try:
        run = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{path} does not run ({error}); {HOW_TO_GET_IT}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    if run.returncode or not match:
        printed = (run.stderr + run.stdout).strip().partition("\n")[0]
        raise EnvironmentProblem(f"{path} -version printed no version ({printed or 'nothing'}); {HOW_TO_GET_IT}")
    return int(match[1])
