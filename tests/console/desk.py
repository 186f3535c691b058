"""A technician at the console of a real daemon: sends keys, reads the text of the screen."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from postroom_client import Client
from postroom_console.data.action_log import ActionLog
from postroom_console.data.config import Config
from postroom_console.data.live import Live
from postroom_console.data.text import width
from postroom_console.tui.app import Console
from postroom_console.tui.row_list import RowList
from tests.wire.daemon import Daemon

PATIENCE_S = 60.0
ASK_EVERY_S = 0.2

Visit = Callable[["Desk"], Coroutine[Any, Any, None]]


class Desk:
    """``keys`` presses keys, ``sees`` waits until a text is on the screen."""

    def __init__(self, console: Console, pilot: Pilot[None], daemon: Daemon, client: Client) -> None:
        self.console = console
        self.pilot = pilot
        self.daemon = daemon
        self.client = client

    async def keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def types(self, text: str) -> None:
        await self.keys(*("minus" if one == "-" else "full_stop" if one == "." else one for one in text))

    def lines(self) -> list[str]:
        """The text on the screen, line by line."""
        strips = self.console.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    def text(self) -> str:
        return "\n".join(self.lines())

    async def waits(self, condition: Callable[[], Any], what: str) -> None:
        """Let the console run until a condition holds."""
        ends = time.monotonic() + PATIENCE_S
        asks = 0.0
        while not condition():
            if time.monotonic() > asks:
                self.console.source.refresh()  # a technician would wait for the next answer
                asks = time.monotonic() + ASK_EVERY_S
            assert time.monotonic() < ends, f"waited in vain until {what}:\n{self.text()}"
            self.console.drain()
            self.console.refresh_view()
            await self.pilot.pause(0.02)

    async def sees(self, *texts: str) -> None:
        await self.waits(lambda: all(text in self.text() for text in texts), f"{texts} is shown")

    async def has(self, rows: str, number: int = 1) -> None:
        """Wait until a list has so many rows."""
        await self.waits(
            lambda: len(self.console.screen.query_one(f"#{rows}", RowList).rows) >= number, f"{rows} has rows"
        )

    async def has_published(self, number: int) -> None:
        """Wait until the tail has so many publishes: their requests, too, which come later than their events."""

        def have_come() -> bool:
            kinds = Counter(record.kind for _, record in self.console.ring.shown)
            return kinds["published"] == kinds["publish"] == number

        await self.waits(have_come, f"{number} publishes have come")

    async def sees_no(self, text: str) -> None:
        await self.waits(lambda: text not in self.text(), f"{text!r} is no longer shown")

    def is_in_shape(self) -> None:
        """Each line is exactly as wide as the terminal."""
        cells = self.console.size.width
        assert [line for line in self.lines() if width(line) != cells] == []


def sit_down(
    daemon: Daemon,
    visit: Visit,
    size: tuple[int, int] = (80, 24),
    read_only: bool = False,
    save_root: Path | None = None,
    log: ActionLog | None = None,
    config: Config | None = None,
) -> None:
    """Run ``visit`` at the console of a daemon."""

    async def sit() -> None:
        client = Client(str(daemon.ipc), client_id="legacy-app")
        make = lambda: Client(str(daemon.ipc), client_id="console-1-1")  # noqa: E731
        source = Live(make, daemon.root / "journal", daemon.root / "traffic")
        console = Console(source, "device", log or ActionLog(None), read_only=read_only, live=False, config=config)
        console.save_root = save_root or daemon.root.parent
        try:
            async with console.run_test(size=size) as pilot:
                await visit(Desk(console, pilot, daemon, client))
        finally:
            source.stop()
            client.close()

    asyncio.run(sit())


async def kill_one(desk: Desk, queue: str, reason: str = "no good", body: object = "x") -> str:
    """Kill a message; returns its key."""
    desk.client.publish(queue, body)
    delivery = desk.client.consume_next(queue, consumer_id="worker-1")
    assert delivery
    desk.client.nack(delivery, reason=reason)
    return str(delivery.message_key)
