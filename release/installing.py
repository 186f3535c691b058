"""Installs wheels into an environment of their own, without anything of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from .errors import ReleaseError

PATIENCE_S = 300

#: Imports all modules of a package except ``__main__``.
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
    """Run pip on another environment. Raises ``ReleaseError`` with the output of pip."""
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode:
        raise ReleaseError(f"pip {arguments[0]}: {(run.stderr or run.stdout).strip()}")


def install_wheels(python: Path, wheels: Path, names: list[str], outside: Iterable[str], constraints: Path) -> None:
    """Install packages from a directory of wheels. Packages from outside the workspace come from pip's usual sources.

    The ranges that packages require of each other are checked by pip's resolver. Raises ``ReleaseError``.
    """
    if outside:
        pip(python, "install", "--quiet", "--no-compile", "-c", str(constraints), *sorted(outside))
    pip(python, "install", "--quiet", "--no-compile", "--no-index", "--find-links", str(wheels), *names)


class Environment:
    """A new virtual environment without pip, which is run from outside."""

    def __init__(self, home: Path) -> None:
        self.home = home
        venv.create(home, with_pip=False, symlinks=True)
        self.python = home / "bin" / "python"

    def install(self, wheels: Path, names: list[str], outside: Iterable[str], constraints: Path) -> None:
        """Like ``install_wheels``, and check that all requirements in the environment are met."""
        install_wheels(self.python, wheels, names, outside, constraints)
        pip(self.python, "check")

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of the environment, or its Python with ``-c`` or ``-m``, outside the checkout; the output.

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
        """Import every module of a package without a warning, and run every command of it with ``--help``.

        Raises ``ReleaseError``.
        """
        if int(self.run("-c", _EVERY_MODULE, module)) == 0:
            raise ReleaseError(f"{module} has no modules")
        for script in scripts:
            if not self.run(script, "--help"):
                raise ReleaseError(f"{script} --help prints nothing")
