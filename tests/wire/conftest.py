"""Daemons for tests: each on a fresh root, ended whatever happens, its log shown with a failure."""

from __future__ import annotations

import contextlib
import os
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


@contextlib.contextmanager
def daemons_in(place: Path, backend: str) -> Iterator[MakeDaemon]:
    """Makes daemons that are not started yet, each on a root of its own in a directory. Their journals are audited at
    the end."""
    made: list[Daemon] = []

    def make(*flags: str, **options: object) -> Daemon:
        options = {"backend": backend, **options}
        made.append(Daemon(place / f"root{len(made) or ''}", *flags, **options))  # type: ignore[arg-type]
        return made[-1]

    try:
        yield make
    finally:
        for daemon in made:
            daemon.kill()
            print(daemon.log())  # pytest shows it only if the test fails
    for daemon in made:
        if daemon.audited:
            assert "Traceback" not in daemon.log()
            audit(daemon.events())


@pytest.fixture
def make_daemon(tmp_path: Path, backend: str) -> Iterator[MakeDaemon]:
    """Makes daemons that are not started yet; the arguments are those of ``Daemon`` behind its root."""
    with daemons_in(tmp_path, backend) as make:
        yield make


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon that serves an empty root."""
    return make_daemon().start()


@pytest.fixture
def make_shared(backend: str) -> Iterator[MakeDaemon]:
    """As ``make_daemon``, with a mailbox that several users share, in a place that all of them can reach."""
    need_root()
    with tempfile.TemporaryDirectory(prefix="postroom-shared-") as place:
        Path(place).chmod(0o711)
        with daemons_in(Path(place), backend) as make:

            def make_one(*flags: str, **options: object) -> Daemon:
                daemon = make(*flags, **options)
                share(daemon)
                return daemon

            yield make_one
