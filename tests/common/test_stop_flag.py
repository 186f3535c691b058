"""The flag that a signal handler sets."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from postroom_common.stop_flag import StopFlag

#: The signal comes at other moments of ``wait`` each time, also just before the system call that waits.
INTERRUPTED = """
import signal
from postroom_common.stop_flag import StopFlag

for count in range(2000):
    with StopFlag() as flag, flag.handlers({signal.SIGALRM: lambda number, frame: flag.set()}):
        signal.setitimer(signal.ITIMER_REAL, (1 + count % 100) / 1_000_000)
        assert flag.wait(60)
"""


def test_a_signal_ends_a_wait_whenever_it_comes() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], timeout=50, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wait_ends_without_the_flag_after_its_time() -> None:
    with StopFlag() as flag:
        before_s = time.monotonic()
        assert not flag.wait(0.02)
        assert time.monotonic() - before_s >= 0.02
        assert not flag.wait(-1)


def test_another_signal_does_not_end_a_wait() -> None:
    with StopFlag() as flag, flag.handlers({signal.SIGUSR1: lambda number, frame: None}):
        signal.raise_signal(signal.SIGUSR1)
        assert not flag.wait(0.02)


def test_a_flag_stays_set_and_the_handlers_before_come_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with StopFlag() as flag:
        with flag.handlers({signal.SIGUSR1: lambda number, frame: flag.set()}):
            signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) == before
        assert [flag.is_set(), flag.wait(60), flag.wait(60), flag.wait(0)] == [True] * 4
