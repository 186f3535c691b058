"""What each screen promises, as pictures of the console at a recorded moment.

``pytest --snapshot-update`` draws them again; look at the difference before you commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_textual_snapshot import SVGImageExtension  # type: ignore[import-untyped]
from textual.pilot import Pilot

from postroom_console.data.config import Config
from postroom_console.i18n import use_language
from postroom_console.tui.app import Console
from tests.console.still import at_the_desk

RECORDING = Path(__file__).parents[2] / "docs" / "pictures" / "recording.jsonl"
NARROW, WIDE = (80, 24), (120, 40)

Compare = Callable[..., bool]
SVGImageExtension.file_extension = "svg"  # the name that newer versions of syrupy look for


@pytest.fixture(autouse=True)
def same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Zone, language and colours of the pictures, wherever they are drawn."""
    monkeypatch.setenv("TZ", "UTC")
    for name in ("NO_COLOR", "POSTROOM_CONSOLE_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    use_language("en")
    yield
    monkeypatch.undo()
    time.tzset()


def shows(
    compare: Compare, keys: Sequence[str] = (), size: tuple[int, int] = NARROW, console: Console | None = None
) -> bool:
    """Whether the screen behind some keys is as it was."""
    console = console or at_the_desk(RECORDING)

    async def look(pilot: Pilot[Any]) -> None:
        for key in (None, *keys, None):
            if key:
                await pilot.press(key)
            for _ in range(2):
                await pilot.pause()
                console.drain()
            console.refresh_view()

    return compare(console, terminal_size=size, run_before=look)


def test_the_first_screen_says_what_is_wrong_and_what_happens_now(snap_compare: Compare) -> None:
    assert shows(snap_compare)


def test_a_wide_screen_describes_the_queue_under_the_cursor(snap_compare: Compare) -> None:
    assert shows(snap_compare, size=WIDE)


def test_a_small_screen_keeps_the_counts_and_the_most_used_keys(snap_compare: Compare) -> None:
    assert shows(snap_compare, size=(40, 10))


def test_the_tail_shows_a_burst_as_one_line(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["2"])


def test_the_lease_that_ends_first_comes_first_and_is_marked(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["3"])


def test_dead_letters_are_listed_by_reason_and_marked_ones_are_starred(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["4", "tab", "space", "space"])


def test_a_wide_screen_shows_the_whole_reason(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["4"], WIDE)


def test_a_message_is_shown_with_its_failures_and_its_history(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["4", "tab", "enter"], WIDE)


def test_a_queue_is_shown_with_its_messages_its_consumers_and_its_policy(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["enter"], WIDE)


def test_health_has_a_line_for_each_part(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["5"])


def test_removing_messages_shows_the_count_and_the_file_and_requires_the_name(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["4", "X"])


def test_actions_are_listed_in_the_log(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["p", "y", "6"])


def test_a_lost_daemon_is_shown_at_once_and_the_last_state_stays(snap_compare: Compare) -> None:
    assert shows(snap_compare, console=at_the_desk(RECORDING, is_lost=True))


def test_a_user_who_may_only_look_is_offered_no_key_that_changes_anything(snap_compare: Compare) -> None:
    assert shows(snap_compare, console=at_the_desk(RECORDING, Config(read_only=True)))


def test_the_help_names_every_key_of_a_screen(snap_compare: Compare) -> None:
    assert shows(snap_compare, ["4", "question_mark"], WIDE)


def test_no_picture_asks_the_network_for_anything(tmp_path: Path) -> None:
    drawn = [*RECORDING.parent.glob("*.svg"), *Path(__file__).parent.glob("__snapshots__/**/*.svg")]
    assert len(drawn) > 20
    for path in drawn:
        text = path.read_text()
        assert "@font-face" not in text and "url(http" not in text and "<image" not in text, path.name
