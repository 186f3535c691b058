"""postroomd migrate: the same messages in another store, whenever it is stopped."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from postroom_daemon.cli import main
from postroom_daemon.config.config import Config, load
from postroom_daemon.maintenance.local import open_local
from postroom_daemon.maintenance.migrate import migrate
from postroom_daemon.maintenance.verify import Kind, Verification
from postroom_daemon.observe.state import StateError, steady
from postroom_daemon.platform.clock import Clock
from postroom_daemon.platform.files import Files, remove_all
from postroom_daemon.root.open_root import StartError
from postroom_daemon.stores.backends import places
from tests.conformance.bench import Bench, MachineClocks
from tests.daemon.random_work import work
from tests.daemon.states import plain

BACKENDS = ("sqlite", "filesystem", "hybrid")
PAIRS = list(itertools.permutations(BACKENDS, 2))


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions of a test on a stopped root are at one moment, about a day after the root was last used: what is due
    by then is done in the first, and nothing becomes due between two whose states are compared."""
    clocks = MachineClocks(boot_id="second-boot")
    clocks.pass_ms(24 * 3600 * 1000)
    monkeypatch.setattr(Clock, "still", clocks.clock)


class Killed(BaseException):
    pass


class KillingFiles(Files):
    """Kills at the n-th call that changes something."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at
        self.fsync = self.syncfs = lambda fd: None  # no power is cut here
        for name in ("rename", "unlink", "mkdir", "fsync", "write", "syncfs"):
            setattr(self, name, self.counted(getattr(self, name)))

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Killed
            return call(*arguments, **options)

        return killing


def make_root(path: Path, backend: str, count: int = 80) -> Config:
    """A root with a history, whose configuration file names the backend."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"nodeId": "press", "backend": backend}))
    bench, random = Bench(path, backend, 2**24, **{"sqlite.synchronous": "OFF"}), Random(11)
    bench.files.fdatasync = bench.files.fsync = bench.files.syncfs = lambda fd: None  # no power is cut here
    bench.open()
    for _ in range(count):
        work(bench, random)
    for mode in ("window", "while-present"):
        policy = {"deduplication": {"mode": mode, "windowSec": 10**7}}
        bench.do("set_policy", queue="once", policy=policy)
        bench.publish("once", deduplicationKey=mode)
    bench.stop()
    bench.store.disk.checkpoint()
    bench.close()
    return load(path, None, {}, {})


def state_of(path: Path) -> dict[str, Any]:
    """All that a root holds, as its configuration file says."""
    with open_local(load(path, None, {}, {}), still=True) as local:
        found = plain(steady(local.call))
    return {part: found[part] for part in ("queues", "messages", "facts")}


def quiet(text: str) -> None:
    return


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_every_message_is_in_the_new_store_and_the_old_one_is_retained(tmp_path: Path, old: str, new: str) -> None:
    config = make_root(tmp_path / "root", old)
    before = state_of(config.root)
    assert len(before["messages"]) > 10 and len(before["facts"]) > 2
    done = migrate(config, new, quiet)
    after = load(config.root, None, {}, {})
    assert (after.settings.backend, after.settings.node_id) == (new, "press")
    assert state_of(config.root) == before
    assert done.messages == len(before["messages"])
    assert done.kept
    assert all(path.exists() for path in done.kept)
    left = {path for path in places(config.settings) if path.exists()} - set(places(after.settings))
    assert not left
    migrate(after, old, quiet)
    assert state_of(config.root) == before


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_whenever_it_is_killed_the_root_works_and_the_migration_can_continue(
    tmp_path: Path, old: str, new: str
) -> None:
    for at in itertools.chain(range(4), itertools.count(4, 7)):
        config = make_root(tmp_path / f"root{at}", old, count=25)
        before = state_of(config.root)
        try:
            migrate(config, new, quiet, KillingFiles(at))
        except Killed:
            assert state_of(config.root) == before
            again = load(config.root, None, {}, {})
            if again.settings.backend != new:
                migrate(again, new, quiet)
            assert state_of(config.root) == before
            assert load(config.root, None, {}, {}).settings.backend == new
            continue
        break
    assert at > 3


def test_a_retained_store_is_never_overwritten_and_its_name_says_when_it_was_replaced(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "sqlite", 5)
    kept: list[Path] = []
    for backend in ("filesystem", "sqlite", "filesystem", "sqlite"):
        kept += migrate(load(config.root, None, {}, {}), backend, quiet).kept
    assert len(set(kept)) == len(kept) and all(path.exists() for path in kept)
    assert all(re.search(r"\.replaced-[0-9]{8}T[0-9]{6}Z(-[0-9]+)?$", path.name) for path in kept)


@pytest.mark.parametrize("new", ["sqlite", "filesystem"])
def test_a_lost_new_store_is_rebuilt_from_the_retained_bodies(tmp_path: Path, new: str) -> None:
    path = tmp_path / "root"
    migrate(make_root(path, "hybrid"), new, quiet)
    before, settings = state_of(path)["messages"], load(path, None, {}, {}).settings
    for place in filter(Path.exists, places(settings)):
        remove_all(place)
    for _ in range(2):  # a start that was refused may leave an empty store
        with pytest.raises(StartError, match=r"rename the directory that the migration left \(payloads.replaced"):
            state_of(path)
        report = Verification(load(path, None, {}, {}), tmp_path).run()
        assert report.counts[Kind.STORE_REFUSED] == 1, report.findings
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"backend": "hybrid"}))
    with pytest.raises(StartError, match="mount it"):
        state_of(path)
    assert not settings.hybrid_payload_root.exists(), "mv would move the right one into it"
    (kept,) = settings.hybrid_payload_root.parent.glob("payloads.replaced-*")
    shutil.move(kept, settings.hybrid_payload_root)
    assert state_of(path)["messages"] == before


def test_a_directory_that_is_not_a_root_is_refused_and_stays_empty(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["migrate", "--root", str(tmp_path), "--to", "filesystem"])
    assert done.exit_code == 1 and f"{tmp_path} is not a root: " in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_configuration_that_could_not_be_changed_is_reported(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "sqlite", 5)
    with pytest.raises(StateError, match="is sqlite already"):
        migrate(config, "sqlite", quiet)
    by_flag = load(config.root, None, {}, {"backend": "sqlite"})
    with pytest.raises(StateError, match="set by flag --backend"):
        migrate(by_flag, "hybrid", quiet)
    by_environment = load(config.root, None, {"POSTROOM_BACKEND": "sqlite"}, {})
    with pytest.raises(StateError, match="set by environment POSTROOM_BACKEND"):
        migrate(by_environment, "hybrid", quiet)


def test_a_root_without_a_configuration_file_gets_one(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "sqlite", 20)
    (config.root / "config.json").unlink()
    before = state_of(config.root)
    migrate(load(config.root, None, {}, {}), "fs", quiet)
    assert json.loads((config.root / "config.json").read_text()) == {"backend": "filesystem"}
    assert state_of(config.root) == before


def test_a_store_with_an_older_state_is_discarded(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "sqlite", 20)
    with pytest.raises(Killed):
        migrate(config, "filesystem", quiet, KillingFiles(30))
    with open_local(config) as local:
        local.call("publish", {"queue": "a", "message": "in between"})
    before = state_of(config.root)
    migrate(config, "filesystem", quiet)
    assert state_of(config.root) == before
    assert not list(config.root.rglob("*.migrating"))


def test_the_files_mode_stays(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "sqlite", 5)
    os.chmod(config.root / "config.json", 0o640)
    migrate(config, "hybrid", quiet)
    assert (config.root / "config.json").stat().st_mode & 0o777 == 0o640


def test_the_command_reports_what_it_did_and_what_it_retained(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "sqlite", 20)
    count = len(state_of(config.root)["messages"])
    done = CliRunner().invoke(main, ["migrate", "--root", str(config.root), "--to", "fs"])
    assert done.exit_code == 0
    assert f"{count} messages moved from sqlite to filesystem" in done.stdout
    assert "the old store is " in done.stdout
    again = CliRunner().invoke(main, ["migrate", "--root", str(config.root), "--to", "filesystem"])
    assert (again.exit_code, "filesystem already" in again.stderr) == (1, True)
    back = CliRunner().invoke(main, ["migrate", "--root", str(config.root), "--to", "sqlite", "--json"])
    shown = json.loads(back.stdout)
    assert (shown["ok"], shown["from"], shown["to"], shown["messages"]) == (True, "filesystem", "sqlite", count)
    assert all(Path(path).exists() for path in shown["kept"])


def test_a_dead_letter_can_be_moved_back_by_hand_after_a_command_on_a_stopped_root(tmp_path: Path) -> None:
    config = make_root(tmp_path / "root", "filesystem", 0)
    with open_local(config) as local:
        local.call("publish", {"queue": "q", "message": "body"})
        held = local.call("consume_next", {"queue": "q"})["lease"]
        local.call("nack", {"messageKey": held["messageKey"], "leaseId": held["leaseId"]})
    (letter,) = (config.settings.filesystem_root / "q" / "dlq").iterdir()
    letter.rename(letter.parent.with_name("inbox") / letter.name)
    with open_local(config) as local:
        assert local.call("status", {"queue": "q"})["metrics"]["ready"] == 1
