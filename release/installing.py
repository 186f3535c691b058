"""Wheels in an environment of their own, as a user has them: nothing of the checkout is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from .errors import ReleaseError

PATIENCE_S = 300

#: Imports all modules of a package but those that run.
_EVERY_MODULE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
names = [name for name in names if not name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def pip(python: Path, *arguments: str) -> None:
    """Run pip on another environment. Raises ``ReleaseError`` with what pip said."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode:
        raise ReleaseError(f"pip {arguments[0]}: {(run.stderr or run.stdout).strip()}")


def install_wheels(python: Path, wheels: Path, names: list[str], outside: Iterable[str], constraints: Path) -> None:
    """Install packages from a directory of wheels alone; what they need from outside comes from where pip gets it.

    The ranges that packages require of each other are checked by pip's resolver. Raises ``ReleaseError``.
    """
    if outside:
        pip(python, "install", "--quiet", "--no-compile", "-c", str(constraints), *sorted(outside))
    pip(python, "install", "--quiet", "--no-compile", "--no-index", "--find-links", str(wheels), *names)


class Environment:
    """A new virtual environment without pip: pip works on it from outside."""

    def __init__(self, home: Path) -> None:
        self.home = home
        venv.create(home, with_pip=False, symlinks=True)
        self.python = home / "bin" / "python"

    def install(self, wheels: Path, names: list[str], outside: Iterable[str], constraints: Path) -> None:
        """As ``install_wheels``; and nothing that was there before has lost what it needs."""
        install_wheels(self.python, wheels, names, outside, constraints)
        pip(self.python, "check")

    def run(self, *command: str, check: bool = True) -> str:
        """The output of a command of it, or of a Python's arguments (``-c``, ``-m``), outside the checkout.

        Raises ``ReleaseError`` when it fails, unless ``check`` is off.
        """
        words = [str(self.python), "-I", "-W", "error"] if command[0].startswith("-") else []
        words += command if words else [str(self.home / "bin" / command[0]), *command[1:]]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTROOM"))}
        run = subprocess.run(words, cwd=self.home, env=clean, capture_output=True, text=True, timeout=PATIENCE_S)
        if check and run.returncode:
            raise ReleaseError(f"{' '.join(command[:3])}: exit status {run.returncode}: {run.stderr.strip()}")
        return run.stdout

    def check(self, module: str, scripts: Iterable[str]) -> None:
        """Import every module of a package without a warning, and ask every command of it for its help.

        Raises ``ReleaseError``.
        """
        if int(self.run("-c", _EVERY_MODULE, module)) == 0:
            raise ReleaseError(f"{module} has no modules")
        for script in scripts:
            if not self.run(script, "--help"):
                raise ReleaseError(f"{script} --help says nothing")
