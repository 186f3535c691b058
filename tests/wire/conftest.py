"""Daemons for tests: each on a fresh root, ended whatever happens, its log shown with a failure."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # tests share modules, however pytest was started

from tests.wire.audit import audit
from tests.wire.daemon import Daemon
from tests.wire.users import need_root, share

MakeDaemon = Callable[..., Daemon]


def on_stores(*names: str) -> pytest.MarkDecorator:
    """Marks a test to which the store makes a difference: it runs on each of these."""
    return pytest.mark.parametrize("backend", names, indirect=True)


on_every_store = on_stores("sqlite", "filesystem", "hybrid")


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The store of a test's daemons. All other tests run on the store that ``POSTROOM_BACKEND`` names, or on sqlite."""
    return str(getattr(request, "param", os.environ.get("POSTROOM_BACKEND", "")))


@pytest.fixture
def make_daemon(tmp_path: Path, backend: str) -> Iterator[MakeDaemon]:
    """Makes daemons that are not started yet; the arguments are those of ``Daemon`` behind its root."""
    made: list[Daemon] = []

    def make(*flags: str, **options: object) -> Daemon:
        options = {"backend": backend, **options}
        daemon = Daemon(tmp_path / f"root{len(made) or ''}", *flags, **options)  # type: ignore[arg-type]
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.kill()
        print(daemon.log())  # pytest shows it only if the test fails
    for daemon in made:
        if daemon.audited:
            assert "Traceback" not in daemon.log()
            audit(daemon.events())


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon that serves an empty root."""
    return make_daemon().start()


@pytest.fixture
def make_shared(backend: str) -> Iterator[MakeDaemon]:
    """As ``make_daemon``, with a mailbox that several users share, in a place that all of them can reach."""
    need_root()
    place = Path(tempfile.mkdtemp(prefix="postroom-shared-"))
    place.chmod(0o711)
    made: list[Daemon] = []

    def make(*flags: str, **options: object) -> Daemon:
        options = {"backend": backend, **options}
        made.append(Daemon(place / f"root{len(made) or ''}", *flags, **options))  # type: ignore[arg-type]
        share(made[-1])
        return made[-1]

    yield make
    for daemon in made:
        daemon.kill()
        print(daemon.log())
    for daemon in made:
        if daemon.audited:
            assert "Traceback" not in daemon.log()
            audit(daemon.events())
    shutil.rmtree(place)
