"""A root with files of another user: no daemon starts, and nothing of it is taken for damage."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom_daemon.config.config import load
from postroom_daemon.doors.mailbox import mailbox_problem
from postroom_daemon.maintenance.local import open_local
from postroom_daemon.root.open_root import StartError
from tests.wire.users import ANNA, acting_as, need_root

SEGMENT = "journal/00000000000000000001.jsonl"
DATABASE = "data/yirangmq.db"


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that every user reaches."""
    need_root()
    with tempfile.TemporaryDirectory(prefix="postroom-usable-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize(
    ("backend", "name", "modes"),
    [
        ("sqlite", SEGMENT, (0o600, 0o644)),
        ("sqlite", "journal", (0o700, 0o755)),
        ("sqlite", "postroomd.lock", (0o600, 0o644)),
        ("sqlite", DATABASE, (0o600, 0o644)),
        ("hybrid", DATABASE, (0o600, 0o644)),
        ("hybrid", "data", (0o700, 0o755)),
        ("filesystem", SEGMENT, (0o600, 0o644)),
        ("filesystem", "data/fs/meta", (0o700, 0o755)),
        ("filesystem", "data/fs/meta/checkpoint", (0o600,)),
    ],
)
def test_files_of_another_user_are_reported_with_the_remedy(
    place: Path, backend: str, name: str, modes: tuple[int, ...]
) -> None:
    root = Path(tempfile.mkdtemp(dir=place))
    config = load(root, None, {}, {"backend": backend})
    with open_local(config) as local:
        local.call("publish", {"queue": "q", "message": "x"})
    for path in (root, *root.rglob("*")):
        os.chown(path, ANNA, ANNA)
    path = next(one for one in sorted(root.rglob("*")) if str(one.relative_to(root)).startswith(name))
    os.chown(path, 0, 0)
    for mode in modes:
        path.chmod(mode)
        before = files_of(root)
        text = f"^{path} belongs to the user root, and {ANNA} may not (read|change) it: .* chown {ANNA} {path}; "
        with acting_as(ANNA), pytest.raises(StartError, match=text), open_local(config):
            pass
        assert files_of(root) == before
    os.chown(path, ANNA, ANNA)
    path.chmod(0)
    with acting_as(ANNA), pytest.raises(StartError, match=f"denies access to its owner {ANNA}: chmod u"):
        open_local(config).__enter__()
    path.chmod(0o700 if stat.S_ISDIR(path.stat().st_mode) else 0o600)
    with acting_as(ANNA), open_local(config) as local:
        assert local.call("status", {"queue": "q"})["metrics"]["ready"] == 1


def test_a_mailbox_of_another_user_is_reported_too(place: Path) -> None:
    settings = load(Path(tempfile.mkdtemp(dir=place)), None, {}, {}).settings
    assert mailbox_problem(settings) == ""
    (settings.ipc_root / "dead").mkdir(parents=True)
    for path in (settings.ipc_root.parent, settings.ipc_root):
        os.chown(path, ANNA, ANNA)
    with acting_as(ANNA):
        assert mailbox_problem(settings).startswith(f"{settings.ipc_root / 'dead'} belongs to the user root, and ")
