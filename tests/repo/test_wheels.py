"""What is shipped can be installed and imported, each package alone, with no tool of this workspace around."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

EVERY_MODULE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""

#: What is too large to install for a test: linked from the environment that runs the tests, with all that it brings.
LARGE = {"pyspark": ("pyspark", "pyspark-*.dist-info", "py4j", "py4j-*.dist-info")}

pytestmark = pytest.mark.slow


def pip(*arguments, python=sys.executable):
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1")
    run = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, *arguments], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory, packages):
    """A directory with the wheel of every package."""
    directory = tmp_path_factory.mktemp("wheels")
    paths = [str(package.directory) for package in packages]
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), *paths)
    return directory


def test_a_package_installs_alone_and_everything_in_it_imports(root, package, packages, wheels, tmp_path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = str(home / "bin" / "python")
    outside = others(package, packages)
    for requirement in sorted(outside):
        if link_large(re.split(r"[^A-Za-z0-9_.-]", requirement)[0], home):
            outside.remove(requirement)
    if outside:
        pip("install", "--quiet", "--no-compile", "-c", str(root / "constraints.txt"), *sorted(outside), python=python)
    # From the wheels alone: the ranges that the siblings require of each other are checked by the resolver.
    pip("install", "--quiet", "--no-index", "--find-links", str(wheels), package.distribution, python=python)
    pip("check", python=python)

    def run(*command):
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)

    imported = run(python, "-I", "-W", "error", "-c", EVERY_MODULE, package.module)
    assert imported.returncode == 0, imported.stderr
    assert int(imported.stdout) > 0
    for script in package.project["project"].get("scripts", {}):
        helped = run(str(home / "bin" / script), "--help")
        assert helped.returncode == 0, helped.stderr
        assert helped.stdout


def test_the_client_s_wheel_fits_every_python(wheels):
    (wheel,) = wheels.glob("postroom_client-*.whl")
    assert wheel.name.endswith("-py2.py3-none-any.whl")


def test_the_console_s_wheel_speaks_every_language(wheels):
    (wheel,) = wheels.glob("postroom_console-*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".mo")}
    assert found == {f"postroom_console/locale/{one}/LC_MESSAGES/postroom-console.mo" for one in ("ja", "ko", "zh")}


def link_large(name, home):
    """Whether the distribution is in the environment by links now; pip finds it there, and checks its version."""
    (target,) = home.glob("lib/python*/site-packages")
    for pattern in LARGE.get(name, ()):
        (found,) = (path for directory in site.getsitepackages() for path in Path(directory).glob(pattern))
        (target / found.name).symlink_to(found)
    return name in LARGE


def others(package, packages):
    """The requirements outside this workspace, its siblings' included."""
    found = set()
    for requirement in package.project["project"]["dependencies"]:
        sibling = re.match(r"postroom-([a-z]+)", requirement)
        if sibling:
            (other,) = (other for other in packages if other.name == sibling[1])
            found |= others(other, packages)
        else:
            found.add(requirement)
    return found
