"""Environments of what a benchmark needs and the product must not depend on: other queues, and what draws plots."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_TIMEOUT_S: Final = 300


class CannotInstall(Exception):
    """The packages cannot be installed; the text says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The packages that ``pinned`` lists, in ``place``, which may be removed at any time: it is made anew when the
    pinned versions change. The newest of ``pythons`` that exists runs them, else the Python of the checkout."""

    pinned: Path
    place: Path
    pythons: tuple[str, ...] = ()

    def interpreter(self) -> Path:
        """The Python that has the packages, which are installed if they are not there yet. Raises ``CannotInstall``."""
        python, stamp = self.place / "bin" / "python", self.place / "installed.txt"
        if stamp.is_file() and stamp.read_text() == self.pinned.read_text():
            return python
        print(f"installing {self.pinned.relative_to(ROOT)} into {self.place.relative_to(ROOT)}", flush=True)
        try:
            _run(self._base_python(), "-m", "venv", "--clear", self.place)
            _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", self.pinned)
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or "").strip()
            raise CannotInstall(f"{error}{': ' + said.splitlines()[-1] if said else ''}") from error
        stamp.write_text(self.pinned.read_text())
        return python

    def _base_python(self) -> str:
        if not self.pythons:
            return sys.executable
        found = subprocess.run(
            [ROOT / "scripts" / "find-python", *self.pythons], stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S
        )
        return found.stdout.strip() or sys.executable


def _run(*command: str | Path) -> None:
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=_TIMEOUT_S
    )
