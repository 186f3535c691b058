"""The last recorded releases, built from their commits; and daemons of them beside today's."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from release.building import build
from release.packages import ROOT, find_package
from release.recorded import last_of, unpack_commit
from tests.wire.conftest import backend, daemon, make_daemon
from tests.wire.daemon import Daemon

__all__ = ["backend", "daemon", "make_daemon"]

MakeRecorded = Callable[..., Daemon]


class Recorded(NamedTuple):
    """Releases as they were: where they are installed, and the checkout of one's commit."""

    installed: Path
    checkout: Path
    version: str


def install_recorded(directory: Path, *names: str) -> Recorded:
    """Unpack the wheels of the last releases of these packages beside each other; the checkout is the first one's."""
    checkouts: dict[str, Path] = {}
    first = None
    for name in names:
        release = last_of(f"postroom-{name}")
        assert release, f"no release of {name} is recorded"
        if release.commit not in checkouts:
            checkouts[release.commit] = unpack_commit(release.commit, directory / release.commit, ROOT)
        checkout = checkouts[release.commit]
        with zipfile.ZipFile(build(find_package(name, checkout), directory / "wheels", "wheel")) as wheel:
            wheel.extractall(directory / "installed")
        first = first or Recorded(directory / "installed", checkout, release.version)
    assert first
    return first


@pytest.fixture(scope="session")
def recorded_client(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The last released client, and nothing else."""
    return install_recorded(tmp_path_factory.mktemp("client"), "client")


@pytest.fixture(scope="session")
def recorded_daemon(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The last released daemon, with what was released of its siblings."""
    return install_recorded(tmp_path_factory.mktemp("daemon"), "daemon", "common", "client")


@pytest.fixture
def make_recorded(recorded_daemon: Recorded, tmp_path: Path) -> Iterator[MakeRecorded]:
    """Makes daemons of the last release that are not started yet; the arguments are those of ``Daemon``."""
    made: list[Daemon] = []

    def make(name: str = "recorded", **options: object) -> Daemon:
        daemon = Daemon(tmp_path / name, **options)  # type: ignore[arg-type]
        daemon.environment["PYTHONPATH"] = str(recorded_daemon.installed)
        made.append(daemon)
        return daemon

    yield make
    for one in made:
        one.kill()
        print(one.log())
