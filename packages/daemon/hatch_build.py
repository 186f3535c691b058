"""Compiles the modules that ``pyproject.toml`` lists, by mypyc, into a wheel for this interpreter and processor.

Hatchling calls it only where ``HATCH_BUILD_HOOKS_ENABLE=1`` is set: without that, the wheel is pure Python. It needs a
C compiler, the headers of Python, and a checkout with the siblings of the package, whose types mypy reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Run where the sources are, with the names of the modules' files as arguments; no path of this machine is compiled in.
_SETUP = """
import sys
from mypyc.build import mypycify
from setuptools import setup
files, name = sys.argv[2:], sys.argv[1]
options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
modules = mypycify([*options, *files], opt_level="2", debug_level="0", group_name=name)
setup(name=name, ext_modules=modules, script_args=["--quiet", "build_ext", "--build-lib", "compiled"])
"""


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled modules to a wheel, beside their source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is built. An editable installation runs from the source, and gets nothing."""
        if version == "editable":
            return
        package = Path(self.root)
        siblings = [str(one) for one in package.parent.glob("*/src") if one.parent != package]
        if not any(Path(one, "postroom_common").is_dir() for one in siblings):
            raise RuntimeError("compiled wheels are built from a checkout: postroom_common is not beside this package")
        self._work = tempfile.TemporaryDirectory(prefix="postroom-compiled-")
        source = Path(self._work.name)
        shutil.copytree(package / "src", source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        name = next(source.iterdir()).name
        command = [sys.executable, "-c", _SETUP, f"{name}._compiled", *self.config["modules"]]
        environment = dict(os.environ, MYPYPATH=os.pathsep.join(siblings))
        run = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"mypyc failed:\n{run.stdout}{run.stderr}")
        compiled = source / "compiled"
        build_data["force_include"] |= {
            str(path): path.relative_to(compiled).as_posix() for path in sorted(compiled.rglob("*.so"))
        }
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel has it."""
        if version != "editable":
            self._work.cleanup()
