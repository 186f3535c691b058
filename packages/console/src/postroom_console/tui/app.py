"""The application: takes updates on a timer, keeps what is known, hands it to the view, and carries out plans."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from textual.app import SystemCommand
from textual.binding import BindingType
from textual.driver import Driver
from textual.screen import Screen
from textual.widgets import Input

from ..data.action_log import ActionLog
from ..data.config import Config
from ..data.live import now_ms
from ..data.model import Model
from ..data.notable import Notable
from ..data.ring import Ring
from ..data.text import clean
from ..data.times import unix_ms
from ..data.updates import Answer, Failure, Lines, Outcome, Restart, Source, Update
from ..i18n import tr
from .ascii import AsciiOnly
from .driver import PlainDriver
from .environment import is_plain_terminal
from .exporting import Exporting
from .headline import Part, device_of, facts, state_of_daemon
from .keymap import keymap, written
from .keys import BACK, EVERYWHERE, LIST, PALETTE, VIEWS, Key
from .palette import Palette
from .picture import without_web_fonts
from .screens.dead import DeadLetters
from .screens.health import Health
from .screens.help import Help
from .screens.leases import Leases
from .screens.log import Log
from .screens.queues import Queues
from .screens.tail import Tail
from .view import TALL, View

#: How often it is looked whether anything has come, and after what time the screen is told without: ages grow.
DRAIN_S: Final = 0.25
TICK_S: Final = 1.0
#: How long nothing is drawn after the way to another screen, so that it comes as a whole.
SETTLE_S: Final = 0.01
QUEUES_EVERY_MS: Final = 2000
HEALTH_EVERY_MS: Final = 4000


class Console(Exporting):
    """``live`` without timers is for tests, which call ``drain`` themselves; ``clock`` gives monotonic
    milliseconds, ``wall_ms`` those of Unix time.

    Making it raises ``ConfigError`` for keys that cannot be used.
    """

    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "colon"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (40, "-narrow"), (60, "-normal"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (10, "-short"), (TALL, "-tall")]  # noqa: RUF012
    #: What works on every screen, and what of it the line at the bottom names first.
    KEYS: ClassVar[tuple[Key, ...]] = EVERYWHERE
    FIRST_KEYS: ClassVar[tuple[Key, ...]] = ()
    #: Keys after which others are meant for another place are looked at before the focus is asked: many keys may come
    #: at once, on a slow line or from a clipboard, and a text for the filter is no row of commands.
    BINDINGS: ClassVar[list[BindingType]] = [
        replace(key.binding(), priority=key.action == "filter" or key.id.startswith("view.")) for key in EVERYWHERE
    ]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        "queues": Queues,
        "tail": Tail,
        "leases": Leases,
        "dead": DeadLetters,
        "health": Health,
        "log": Log,
    }
    DEFAULT_MODE = "queues"

    def __init__(
        self,
        source: Source,
        name: str,
        log: ActionLog,
        read_only: bool = False,
        config: Config | None = None,
        clock: Callable[[], int] = now_ms,
        live: bool = True,
        driver_class: type[Driver] | None = None,
        wall_ms: Callable[[], int] = unix_ms,
    ) -> None:
        self.config = config or Config()
        super().__init__(source, log, read_only or self.config.read_only, driver_class)
        self.model = Model()
        self.ring = Ring()
        self.notable = Notable()
        self.event_rate: float | None = None
        self._keys = keymap(self.config.keys, f"{self.config.path}: " if self.config.path else "")
        if self.config.ascii:
            self._filters.append(AsciiOnly())
        self.clock = clock
        self.skipped_bytes = 0
        self.bad_lines = 0
        self.missing_events = 0
        self.tail_problem = ""
        self.save_root = Path.cwd()
        self._device = name
        self._live = live
        self._told_s = 0.0
        self._wall_ms = wall_ms
        self._counted_at: tuple[int, int] | None = None  # event and engine time of an answer before

    def on_mount(self) -> None:
        self.set_keymap(self._keys)
        self.source.want("health", "health", {}, HEALTH_EVERY_MS)
        self.source.want("metrics", "metrics", {}, HEALTH_EVERY_MS)
        self.source.want("queues", "list_queues", {"limit": 1000}, QUEUES_EVERY_MS)
        self.source.start()
        if self._live:
            self._look()

    # --- updates ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look by a timer of the loop whether anything has come: one of Textual takes many times what that takes, and
        mostly nothing has."""
        asyncio.get_running_loop().call_later(DRAIN_S, self._look)
        updates = self._drained()
        if updates:
            self.call_later(self._take_all, updates)
        elif time.monotonic() - self._told_s > TICK_S - DRAIN_S / 2 and not self._is_behind:
            self.call_later(self._tell)

    def drain(self) -> None:
        """Take what has come; nothing while the terminal has not yet shown what was drawn before."""
        self._take_all(self._drained())

    def _drained(self) -> list[tuple[int, Update]]:
        return [] if self._is_behind else self.source.drain()

    @property
    def _is_behind(self) -> bool:
        driver = self._driver
        return isinstance(driver, PlainDriver) and driver.frames_behind > 0

    def _take_all(self, updates: list[tuple[int, Update]]) -> None:
        before = self._newest_shown
        for at_ms, update in updates:
            self._take(update, at_ms)
        # Of the traffic of this console itself nothing is seen: the next second is soon enough for it.
        if any(type(update) is not Lines for _, update in updates) or self._newest_shown != before:
            self._tell()

    @property
    def _newest_shown(self) -> int:
        return self.ring.shown[-1][0] if self.ring.shown else 0

    def _take(self, update: Update, at_ms: int) -> None:
        match update:
            case Answer(name, data):
                self.model.take(name, data, at_ms)
                if name == "queues":
                    self._count_events(data)
            case Failure(name, code, text):
                self.model.fail(name, code, text, at_ms)
            case Lines():
                self.ring.add(update.records)
                self.notable.add(update.records)
                self.skipped_bytes += update.skipped_bytes
                self.bad_lines += update.bad_lines
                self.missing_events += update.missing_events
                self.tail_problem = update.problem
            case Outcome():
                self.end(update)
            case Restart():
                self.model = Model()
                self.ring.clear()
                self.notable = Notable()
                self.event_rate = self._counted_at = None
                self.skipped_bytes = self.bad_lines = self.missing_events = 0

    def _count_events(self, data: Mapping[str, Any]) -> None:
        """Events a second, from the numbers of the last events of two answers."""
        before = self._counted_at
        event, engine_ms = int(data.get("asOfEvent") or 0), int(data.get("engineNowMs") or 0)
        self._counted_at = (event, engine_ms)
        if before and event >= before[0] and engine_ms > before[1]:
            self.event_rate = (event - before[0]) * 1000 / (engine_ms - before[1])

    def _tell(self) -> None:
        self._told_s = time.monotonic()
        if isinstance(self.screen, View):
            self.screen.tell()

    @property
    def is_stale(self) -> bool:
        return self.model.is_stale(self.clock())

    def headline(self, *shown: Part) -> list[Part]:
        """How the daemon is, what is ``shown``, and what is wrong, in a few words."""
        model = self.model
        is_lost = bool(model.problem and not model.problem_code)
        return [
            Part(0, self.source.note()),
            Part(0, f"{device_of(model, self._device)} {state_of_daemon(model, self.clock())}"),
            *shown,
            Part(1, "RO" if self.read_only else ""),
            Part(1, clean(model.problem) if is_lost else ""),
            *facts(model, self.event_rate),
        ]

    def wall_ms(self) -> int:
        """The time of day at the device's place in time: the recording's, where one is shown."""
        return self._wall_ms()

    def shown(self, key: Key) -> str:
        """How a key is written for people."""
        return written(self._keys[key.id]) if key.id in self._keys else key.shown

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """A picture of the screen, which asks no one for a font."""
        return without_web_fonts(super().export_screenshot(title=title, simplify=simplify))

    # --- views ------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave what is typed into a field, or belongs to a dialog, alone."""
        if action in ("filter", "view"):
            return isinstance(self.screen, View) and not isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def action_view(self, name: str) -> None:
        if isinstance(self.screen, View):
            for _ in self.screen_stack[1:]:  # what was opened from a view is left with it
                self.pop_screen()
            self.switch_mode(name)

    def delay_update(self, delay: float = 0.0) -> None:
        """Draw nothing for a while. Textual's own while would be most of the time from a key to its screen."""
        super().delay_update(delay or SETTLE_S)

    def action_help(self) -> None:
        if isinstance(self.screen, View):
            self.push_screen(Help(self.screen.KEYS, self.KEYS, self.shown))

    def action_filter(self) -> None:
        if isinstance(self.screen, View):
            self.screen.action_filter()

    def action_copy(self) -> None:
        """Give the key under the cursor to the terminal's clipboard, by OSC 52: only ever because it was asked for."""
        text = self.screen.copyable() if isinstance(self.screen, View) else ""
        if text:
            self.copy_to_clipboard(text)
            done = tr("this terminal has no clipboard") if is_plain_terminal() else tr("sent to the clipboard")
            self.say(f"{done}: {clean(text)}")

    def action_command_palette(self) -> None:
        if isinstance(self.screen, View):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """What the palette offers: the views, and the keys of the one that is shown."""
        for key in VIEWS:
            name = key.id.removeprefix("view.")
            yield SystemCommand(tr(key.words), tr("go to this view"), lambda name=name: self.action_view(name))
        everywhere = [key for key in (*self.KEYS, *BACK) if key not in (*VIEWS, PALETTE)]
        lists = LIST if screen.query("RowList") else ()
        for key in (*(screen.KEYS if isinstance(screen, View) else ()), *everywhere, *lists):
            if not (key.changes and self.read_only):
                shown = f"{tr('key')} {self.shown(key)}"
                yield SystemCommand(tr(key.words), shown, lambda key=key: self._run_later(screen, key.action))

    def _run_later(self, screen: Screen[Any], action: str) -> None:
        """Do what a key does, where the keys go: to the list that has them, the screen, or all of the application."""
        self.call_later(self._run, screen, action)

    async def _run(self, screen: Screen[Any], action: str) -> None:
        name = f"action_{action.partition('(')[0]}"
        for place in (screen.focused, screen, self):
            if place is not None and hasattr(place, name):
                await self.run_action(action, place)
                return
