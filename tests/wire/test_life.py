"""Start, stop, and what happens around a running daemon."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from postroom_client import Client, DaemonNotRunning, RequestTimeout
from tests.wire.audit import audit
from tests.wire.conftest import on_every_store
from tests.wire.daemon import PATIENCE_S, Daemon, wait_until


@on_every_store
def test_a_stop_under_load_ends_in_order_and_loses_nothing(daemon: Daemon) -> None:
    acknowledged: list[str] = []
    stopping = threading.Event()

    def publish(number: int) -> None:
        with Client(str(daemon.ipc), client_id=f"publisher-{number}", timeout=2) as client:
            while not stopping.is_set():
                try:
                    acknowledged.append(client.publish("q", "x")["messageKey"])
                except (RequestTimeout, DaemonNotRunning):  # the machine is slow, or the daemon has stopped
                    pass

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    daemon.wait(lambda: len(acknowledged) > 300, "there is load")
    stopping.set()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(PATIENCE_S) == 0
    for thread in threads:
        thread.join(PATIENCE_S)
    ledger = audit(daemon.events())
    assert set(acknowledged) <= set(ledger.messages)
    assert daemon.events()[-1]["type"] == "clock_marked"
    assert daemon.events()[-1]["clean"] is True
    daemon.start()
    assert daemon.counts("q")["ready"] >= len(acknowledged)


def test_interrupts_stop_it_even_if_its_starter_ignores_them(make_daemon) -> None:
    daemon = make_daemon(wrapper=("sh", "-c", 'trap "" INT; exec "$@"', "sh")).start()
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_does_not_wait_for_long_polls(daemon: Daemon, number: signal.Signals) -> None:
    sent = daemon.send("consume_next", {"queue": "q", "waitMs": 600_000})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] >= 1, "somebody waits")
    daemon.process.send_signal(number)
    assert daemon.process.wait(PATIENCE_S) == 0
    assert (daemon.requests / sent.name).exists(), "the next daemon must find the request"


@on_every_store
def test_a_stop_in_the_midst_of_a_backlog_leaves_the_rest_for_the_next_daemon(daemon: Daemon) -> None:
    daemon.freeze()
    sent = [daemon.send("publish", {"queue": "q", "message": str(number)}) for number in range(2000)]
    daemon.process.send_signal(signal.SIGTERM)
    daemon.thaw()
    assert daemon.process.wait(PATIENCE_S) == 0
    daemon.start()
    assert all(daemon.answer(one)["ok"] for one in sent)
    assert daemon.counts("q") == {"ready": 2000}


def test_a_second_daemon_on_the_same_root_is_refused(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "postroom_daemon", "run", "--root", str(daemon.root)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert second.returncode == 1
    assert str(daemon.root) in second.stderr
    assert "another postroomd works on this root" in second.stderr
    assert "Traceback" not in second.stderr
    daemon.publish("q")


def test_the_content_of_the_lock_file_does_not_matter(daemon: Daemon) -> None:
    daemon.kill()
    for lock in (daemon.root / "postroomd.lock", daemon.ipc / "daemon.lock"):
        lock.write_text(f"{os.getpid()}\n")
    daemon.start()


def test_clients_can_see_whether_a_daemon_serves(daemon: Daemon) -> None:
    with (daemon.ipc / "daemon.lock").open("rb") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        daemon.kill()
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_requests_written_before_the_start_are_served(make_daemon) -> None:
    daemon = make_daemon()
    daemon.requests.mkdir(parents=True)
    sent = [daemon.send("publish", {"queue": "q", "message": str(number)}) for number in range(20)]
    daemon.start()
    assert all(daemon.answer(one)["ok"] for one in sent)


def watched_inodes(daemon: Daemon) -> set[int]:
    """The inodes that the daemon has inotify watches on."""
    reported = [path.read_text() for path in Path(f"/proc/{daemon.process.pid}/fdinfo").iterdir()]
    return {int(inode, 16) for text in reported for inode in re.findall(r"^inotify wd:\S+ ino:(\S+)", text, re.M)}


@pytest.mark.parametrize("how", ["renamed away", "removed"])
def test_a_requests_directory_that_is_replaced_is_noticed(daemon: Daemon, how: str) -> None:
    if how == "removed":
        daemon.requests.rmdir()
    else:
        daemon.requests.rename(daemon.ipc / "requests.old")
    daemon.requests.mkdir(exist_ok=True)
    daemon.publish("q", "into the new one")
    daemon.wait(lambda: "was replaced" in daemon.log(), "it is logged")
    daemon.wait(lambda: daemon.requests.stat().st_ino in watched_inodes(daemon), "the new directory is watched")
    daemon.publish("q", "woken as before")


def test_a_removed_mailbox_is_recreated_as_it_was_and_is_not_served_behind_a_link(daemon: Daemon) -> None:
    daemon.requests.chmod(0o3733)
    daemon.publish("q", "before")
    shutil.rmtree(daemon.ipc)
    daemon.wait(lambda: "the mailbox is opened again" in daemon.log(), "it is logged")
    assert stat.S_IMODE(daemon.requests.stat().st_mode) == 0o3733
    daemon.publish("q", "after")
    assert daemon.counts("q") == {"ready": 2}
    daemon.requests.rename(daemon.ipc / "elsewhere")
    daemon.requests.symlink_to("elsewhere")
    assert daemon.process.wait(PATIENCE_S) == 1
    assert "requests has become a symbolic link: no request can come" in daemon.log()
    assert daemon.events()[-1]["clean"], "it has stopped in order"


def test_without_a_watcher_requests_are_found_by_polling(make_daemon) -> None:
    daemon = make_daemon("--ipc-use-folder-watcher", "false", "--ipc-poll-interval-ms", "5").start()
    sent = daemon.send("consume_next", {"queue": "q", "waitMs": 60_000})
    daemon.publish("q")
    assert daemon.answer(sent)["data"]["message"]


def can_unshare() -> bool:
    """Whether a user namespace can be made here, with inotify limits of its own."""
    probe = ["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_inotify_instances"]
    return shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True).returncode == 0


def test_when_inotify_is_exhausted_the_daemon_warns_and_polls(make_daemon) -> None:
    if can_unshare():
        limited = 'echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"'
        daemon = make_daemon(wrapper=("unshare", "-Ur", "sh", "-c", limited, "sh"))
        daemon.start()
    else:
        daemon = make_daemon()
        with inotify_used_up():
            daemon.start()
    assert "inotify is not available" in daemon.log()
    assert "polling every 100 ms" in daemon.log()
    daemon.publish("q")


class inotify_used_up:
    """Holds every inotify instance that this user may have."""

    def __enter__(self) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self._fds = []
        while (fd := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            self._fds.append(fd)

    def __exit__(self, *exc_info: object) -> None:
        for fd in self._fds:
            os.close(fd)


def test_an_idle_daemon_sleeps(daemon: Daemon) -> None:
    daemon.send("consume_next", {"queue": "q", "waitMs": 600_000})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] >= 1, "somebody waits")

    def cpu_ticks() -> int:
        fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, began = cpu_ticks(), time.monotonic()
    wait_until(lambda: time.monotonic() > began + 2, "two seconds are over")
    assert (cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") < 0.06
