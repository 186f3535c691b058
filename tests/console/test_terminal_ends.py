"""How the process ends: at a key, at a signal, and when the terminal is gone."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from postroom_console.tui.driver import FORCED_END_S
from tests.console.terminal import Terminal, terminal

#: Seconds in which the process must be gone.
GONE_S = 2.0
#: CPU seconds that an end may cost; one that spins uses all that it gets.
CPU_S = 0.8


def _ends(shown: Terminal) -> int:
    """Wait for the end and print how soon it comes, since that depends on the load of the machine."""
    used = shown.cpu_s()
    begun = time.monotonic()
    status = shown.ends()
    assert shown.cpu_used_s - used < CPU_S, f"it spun: {shown.cpu_used_s - used:.2f} s of CPU"
    print(f"gone after {time.monotonic() - begun:.2f} s")
    return status


def _command(directory: Path, code: str) -> Path:
    """A ``postroom-console`` that runs this code in the place of ``cli.main()``."""
    command = directory / "postroom-console"
    command.write_text(f"#!{sys.executable}\nfrom postroom_console import cli\n{code}")
    command.chmod(0o755)
    return command


def test_a_console_that_does_not_end_in_order_is_killed_in_time() -> None:
    assert FORCED_END_S < GONE_S


def test_a_key_ends_it_and_leaves_the_terminal_as_it_was(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.keys("q")
        assert _ends(shown) == 0
        assert shown.is_in_order()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_it_in_order(site: Path, number: signal.Signals) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.process.send_signal(number)
        assert _ends(shown) == 128 + number
        assert shown.is_in_order()


def test_a_signal_ends_it_in_the_midst_of_a_dialog_and_of_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    with terminal("--root", str(tmp_path / "nothing")) as shown:
        shown.sees("q quit")
        shown.keys("?")
        shown.sees("EVERYWHERE")
        shown.process.send_signal(signal.SIGTERM)
        assert _ends(shown) == 128 + signal.SIGTERM
        assert shown.is_in_order()


@pytest.mark.parametrize(
    ("is_controlling", "ignored"),
    [(True, ()), (True, (signal.SIGHUP,)), (False, ())],
    ids=["with-its-signal", "nohup", "no-controlling-terminal"],
)
def test_it_ends_with_its_terminal(site: Path, is_controlling: bool, ignored: tuple[int, ...]) -> None:
    with terminal("--root", str(site), is_controlling=is_controlling, ignored=ignored) as shown:
        shown.sees("paused", "RUN")
        shown.keys("2")
        shown.sees("FOLLOW")
        shown.hang_up()
        assert _ends(shown) == 128 + signal.SIGHUP


def test_a_hang_up_that_is_noticed_after_its_signal_changes_no_status(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = _command(
        tmp_path,
        """
import threading
from postroom_console.tui.driver import TerminalDriver

force_end = TerminalDriver._force_end

def force_end_late(self, status):
    if threading.current_thread().name == "terminal-hang-up":
        while not self._event_loop.is_closed():
            threading.Event().wait(0.005)
    force_end(self, status)

TerminalDriver._force_end = force_end_late
try:
    cli.main()
finally:
    for thread in threading.enumerate():
        if thread.name == "terminal-hang-up":
            thread.join()
""",
    )
    monkeypatch.setattr("tests.console.terminal.COMMAND", command)
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.hang_up()
        assert _ends(shown) == 128 + signal.SIGHUP


def test_an_inherited_ignored_hangup_ends_nothing(site: Path) -> None:
    with terminal("--root", str(site), ignored=(signal.SIGHUP,)) as shown:
        shown.sees("paused", "RUN")
        shown.process.send_signal(signal.SIGHUP)
        shown.keys("2")
        shown.sees("FOLLOW")
        shown.keys("q")
        assert shown.ends() == 0


def test_a_signal_ends_it_even_if_the_terminal_line_is_stopped(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.stand_still()
        shown.process.send_signal(signal.SIGTERM)
        assert _ends(shown) == 128 + signal.SIGTERM
        assert shown.has_modes_of_before()


def test_an_end_by_force_leaves_the_terminal_as_it_was(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = _command(tmp_path, "from postroom_console.tui import driver\n\ndriver.FORCED_END_S = 0\ncli.main()\n")
    monkeypatch.setattr("tests.console.terminal.COMMAND", command)
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.process.send_signal(signal.SIGTERM)
        assert _ends(shown) == 128 + signal.SIGTERM
        assert shown.is_in_order()


def test_a_stopped_and_continued_console_redraws_a_screen_that_others_have_used(site: Path) -> None:
    with terminal("--root", str(site)) as shown:
        shown.sees("paused", "RUN")
        shown.process.send_signal(signal.SIGSTOP)
        shown.waits(shown.is_stopped, "it is stopped")
        shown.others_use_it("$ the prompt of a shell")
        shown.sees("the prompt of a shell")
        shown.process.send_signal(signal.SIGCONT)
        shown.waits(lambda: "prompt" not in shown.text(), "the shell's prompt is gone")
        shown.sees("paused", "q quit")
        shown.keys("2")
        shown.sees("FOLLOW")
        shown.keys("q")
        assert _ends(shown) == 0
        assert shown.is_in_order()
