"""Who may work on a root: one process, of the user that the root belongs to, on a store that is no other root's."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from click.testing import CliRunner

from postroom_daemon.cli import main
from postroom_daemon.config.config import load
from postroom_daemon.platform.clock import Clock
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.ids import Ids
from postroom_daemon.root.open_root import Sources, StartError, open_root
from tests.daemon.populated_root import files_below

WRITING = (
    ["run"],
    ["repair"],
    ["repair", "--apply"],
    ["accept-loss"],
    ["migrate", "--to", "hybrid"],
    ["backup", "--to", "backup.tar"],
    ["export"],
    ["local", "health"],
    ["restore", "--replace", "--from", "backup"],
)


def postroomd(*words: str):
    clean = {name: None for name in os.environ if name.startswith("POSTROOM_")}
    return CliRunner(env=clean).invoke(main, words)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "root"
    assert postroomd("init", "--root", str(root)).exit_code == 0
    assert postroomd("local", "--root", str(root), "publish", "--queue", "q", "--message", "m").exit_code == 0
    assert postroomd("backup", "--root", str(root), "--to", "backup").exit_code == 0
    return root


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_user_who_would_leave_files_that_the_daemon_cannot_use_is_refused(root, monkeypatch, words):
    before, owner = files_below(root), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)  # as a superuser, whom no mode stops
    done = postroomd(words[0], "--root", str(root), *words[1:])
    assert done.exit_code == 1
    assert f"{root} belongs to the user " in done.stderr and "do this as that user" in done.stderr
    assert "Traceback" not in done.stderr
    assert files_below(root) == before


def test_a_root_of_another_user_may_be_verified(root, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    done = postroomd("verify", "--root", str(root))
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize("words", WRITING[1:], ids=" ".join)
def test_a_root_without_read_permission_is_reported_in_one_line(root, monkeypatch, words):
    def refuse(path, *rest, **named):
        if str(path).startswith(str(root)) and not str(path).endswith("config.json"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *rest, **named)

    opened = os.open
    monkeypatch.setattr(os, "open", refuse)
    done = postroomd(words[0], "--root", str(root), *words[1:])
    assert done.exit_code == 1
    assert done.stderr.startswith("postroomd: ") and "Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1


SHARED = pytest.mark.parametrize(
    ("backend", "key"), [("filesystem", "filesystem.root"), ("hybrid", "hybrid.payloadRoot")]
)


def sharing(tmp_path, backend, key):
    """The configurations of two new roots that were given the same directory of messages, which is not there yet."""
    given = {"backend": backend, key: str(tmp_path / "messages")}
    for name in ("one", "other"):
        assert postroomd("init", "--root", str(tmp_path / name)).exit_code == 0
    return [load(tmp_path / name, None, {}, given) for name in ("one", "other")]


def opened(config):
    return closing(open_root(config, Sources(Files(), Clock, Ids())))


@SHARED
def test_two_new_roots_never_work_on_the_same_files_of_messages(tmp_path, backend, key):
    one, other = sharing(tmp_path, backend, key)
    refused = pytest.raises(StartError, match=f"{tmp_path}/messages: a postroomd works on it for another root")
    with opened(one), refused, opened(other):
        pass
    with opened(other):
        pass  # the first one has let go


@SHARED
def test_a_store_in_use_by_another_root_is_neither_set_aside_nor_replaced(tmp_path, backend, key):
    one, other = sharing(tmp_path, backend, key)
    for words in (("local", "publish", "--queue", "q", "--message", "m"), ("backup", "--to", str(tmp_path / "backup"))):
        assert postroomd(words[0], "--root", str(other.root), *words[1:]).exit_code == 0
    place = {"filesystem.root": "--filesystem-root", "hybrid.payloadRoot": "--hybrid-payload-root"}[key]
    words = ("--root", str(other.root), place, str(tmp_path / "messages"), "--backend", backend)
    with opened(one):
        messages = (tmp_path / "messages").stat().st_ino
        with pytest.raises(StartError, match="for another root"):
            open_root(other, Sources(Files(), Clock, Ids()), refold=True)
        done = postroomd("restore", *words, "--replace", "--from", str(tmp_path / "backup"))
        assert done.exit_code == 1 and "a postroomd works on it for another root" in done.stderr
        assert (tmp_path / "messages").stat().st_ino == messages


def test_a_root_may_be_named_by_a_link(root):
    link = root.with_name("link")
    link.symlink_to(root)
    done = postroomd("local", "--root", str(link), "status", "--queue", "q")
    assert (done.exit_code, done.stderr) == (0, "")
