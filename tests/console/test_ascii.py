"""Drawing with ASCII only."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.segment import Segment
from textual.color import Color

from postroom_console.data.config import Config
from postroom_console.data.text import width
from postroom_console.tui.ascii import AsciiOnly
from tests.console.desk import Desk, sit_down
from tests.wire.daemon import Daemon


def drawn(text: str) -> str:
    """A line as it is drawn with ASCII only."""
    return "".join(one.text for one in AsciiOnly().apply([Segment(text)], Color(0, 0, 0)))


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("┌─┐│▆", "+-+|#"),
        ("수집-센서 設定更新 é٣", "수집-센서 設定更新 é٣"),
        ("温度、高い。", "温度、高い。"),
        ("🔎 → …", " > > ."),
        ("☃ 🚀", "? ??"),
    ],
)
def test_lines_and_symbols_become_ascii_of_their_width_and_letters_stay(text: str, seen: str) -> None:
    assert drawn(text) == seen
    assert width(drawn(text)) == width(text)


def test_in_ascii_mode_no_screen_draws_anything_else(daemon: Daemon, tmp_path: Path) -> None:
    async def visit(desk: Desk) -> None:
        desk.client.publish("alarms", {"evt": 1})
        await desk.has("queues")
        for keys in (["2"], ["3"], ["4"], ["5"], ["6"], ["question_mark"], ["escape", "1", "enter"], ["colon"]):
            await desk.keys(*keys)
            await desk.sees("")
            assert desk.text().isascii(), desk.text()

    sit_down(daemon, visit, config=Config(ascii=True))
