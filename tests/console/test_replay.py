"""A recording on the screen: its time, its keys, and that it allows no action."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom_console.data.replay import Replay
from postroom_console.data.updates import Answer
from postroom_console.tui.replay import ReplayConsole
from tests.console.test_data_record import INCIDENT, Clock, Timed, write

Visit = Callable[["Cinema"], Coroutine[Any, Any, None]]


class Cinema:
    """``keys`` presses keys, ``lines`` is what the screen shows then."""

    def __init__(self, console: ReplayConsole, pilot: Pilot[None], clock: Clock) -> None:
        self.console = console
        self.clock = clock
        self._pilot = pilot

    async def keys(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def waits(self, seconds: float) -> None:
        self.clock.now += seconds
        self.console.drain()
        await self._pilot.pause()

    def text(self) -> str:
        strips = self.console.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    def ready(self) -> int:
        return self.console.model.queues["alarms"].ready


def go(tmp_path: Path, visit: Visit, updates: Timed = INCIDENT) -> None:
    """Run ``visit`` at the console of a recording, by default the incident, at its beginning."""

    async def run() -> None:
        clock = Clock()
        replay = Replay(write(tmp_path / "incident", updates), clock)
        console = ReplayConsole(replay, live=False)
        try:
            async with console.run_test(size=(120, 24)) as pilot:
                cinema = Cinema(console, pilot, clock)
                await cinema.waits(0)
                await visit(cinema)
        finally:
            replay.stop()

    asyncio.run(run())


def test_the_screen_says_that_it_is_a_recording_and_shows_it(tmp_path: Path) -> None:
    async def visit(cinema: Cinema) -> None:
        await cinema.waits(30.5)
        assert "REPLAY" in cinema.text()
        assert "30s/1m30" in cinema.text()
        assert "alarms" in cinema.text()
        assert "STALE" not in cinema.text()
        assert cinema.ready() == 30

    go(tmp_path, visit)


def test_keys_pause_step_and_seek(tmp_path: Path) -> None:
    async def visit(cinema: Cinema) -> None:
        await cinema.waits(50)
        await cinema.keys("v")
        await cinema.waits(3600)
        assert cinema.ready() == 50
        assert "PAUSED" in cinema.text() and "STALE" not in cinema.text()
        await cinema.keys("full_stop", "full_stop")
        assert cinema.ready() == 51
        await cinema.keys("less_than_sign", "less_than_sign")
        assert cinema.ready() == 31
        assert cinema.console.ring.shown[-1][1].number == 31
        await cinema.keys("greater_than_sign")
        assert cinema.ready() == 41
        await cinema.keys("v", "right_curly_bracket", "right_curly_bracket")
        await cinema.waits(5)
        assert cinema.ready() == 61
        assert "x4" in cinema.text()

    go(tmp_path, visit)


def test_the_end_stays_on_the_screen(tmp_path: Path) -> None:
    async def visit(cinema: Cinema) -> None:
        await cinema.waits(3600)
        await cinema.waits(3600)
        assert cinema.ready() == 90
        assert "END" in cinema.text() and "STALE" not in cinema.text()

    go(tmp_path, visit)


def test_no_action_is_possible_in_a_recording(tmp_path: Path) -> None:
    async def visit(cinema: Cinema) -> None:
        await cinema.keys("p", "i", "X", "U")
        assert len(cinema.console.screen_stack) == 1
        assert cinema.console.read_only
        await cinema.keys("question_mark")
        assert "10 seconds back" in cinema.text()

    go(tmp_path, visit)


@pytest.mark.parametrize("view", "23456")
def test_every_view_survives_a_jump_through_time(tmp_path: Path, view: str) -> None:
    async def visit(cinema: Cinema) -> None:
        await cinema.waits(60)
        await cinema.keys(view, "less_than_sign", "greater_than_sign", "greater_than_sign")
        await cinema.waits(1)
        assert "REPLAY" in cinema.text()

    go(tmp_path, visit)


#: What no daemon has ever said.
MALFORMED = [
    Answer("queues", {"queues": [1, 2]}),
    Answer("queues", {"queues": [{"queue": "alarms"}]}),
    Answer("leases", {"messages": [{"queue": 1}]}),
    Answer("dead", {"queue": "", "messages": [{}]}),
    Answer("health", {"status": 5, "checks": [1], "nodeId": ["x"]}),
    Answer("metrics", {"mailbox": 7, "uptimeMs": "x"}),
]


@pytest.mark.parametrize("strange", MALFORMED, ids=lambda one: one.name)
def test_a_recording_that_was_tampered_with_ends_nothing(tmp_path: Path, strange: Answer) -> None:
    async def visit(cinema: Cinema) -> None:
        await cinema.waits(300)
        for key in "123456":
            await cinema.keys(key)
            cinema.console.refresh_view()
            await cinema.waits(1)
            assert "quit" in cinema.text()
        await cinema.keys("1")

    good = [(at, update) for at, update in INCIDENT if not isinstance(update, Answer) or update.name != strange.name]
    go(tmp_path, visit, [*good, (200_000, strange)])
