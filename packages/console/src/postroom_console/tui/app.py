"""The application: takes updates on a timer, keeps the known state, and switches between the views."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.command import CommandPalette, SearchIcon
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widgets import Input

from ..data.action_log import ActionLog
from ..data.actions import Plan
from ..data.config import Config
from ..data.detail_pane import AdminEvents
from ..data.live import now_ms
from ..data.model import Model
from ..data.ring import Ring
from ..data.text import clean
from ..data.times import unix_ms
from ..data.updates import Answer, Failure, Lines, Outcome, Restart, Source, Update
from ..i18n import tr
from ..paths import DaemonPaths
from .actions import ActionRunner
from .ascii import AsciiOnly
from .dialogs import Help
from .driver import TerminalDriver
from .environment import is_plain_terminal
from .headline import Part, device_name, status_of, summary_of
from .keys import BACK, EVERYWHERE, LIST, PALETTE, VIEWS, Key, key_label, keymap
from .screens.dead import DeadLettersView
from .screens.health import HealthView
from .screens.leases import LeasesView
from .screens.log import LogView
from .screens.queues import QueuesView
from .screens.tail import TailView
from .view import TALL, View

#: Seconds between two looks for updates, and between two refreshes without any: ages grow.
DRAIN_S: Final = 0.25
TICK_S: Final = 1.0
#: Seconds without drawing after a change of screens, so that the new one appears as a whole.
SETTLE_S: Final = 0.01
QUEUES_EVERY_MS: Final = 2000
HEALTH_EVERY_MS: Final = 4000
_FONT_FACE: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


class Palette(CommandPalette):
    """Textual's command palette, without its emoji and block characters."""

    def __init__(self) -> None:
        super().__init__(placeholder=tr("a command's name"), id="--command-palette")

    def on_mount(self) -> None:
        self.query_one(SearchIcon).icon = ">"


class Console(App[None]):
    """The console of a daemon.

    ``live=False`` starts no timer, for tests, which call ``drain`` themselves. ``clock`` returns monotonic
    milliseconds, ``wall_ms`` Unix milliseconds. ``paths`` are those of the daemon; None in a recording.

    The constructor raises ``ConfigError`` for keys that cannot be used.
    """

    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "colon"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (40, "-narrow"), (60, "-normal"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (10, "-short"), (TALL, "-tall")]  # noqa: RUF012
    #: The keys that work on every screen, and those of them that the line at the bottom names first.
    KEYS: ClassVar[tuple[Key, ...]] = EVERYWHERE
    FIRST_KEYS: ClassVar[tuple[Key, ...]] = ()
    #: Keys that change where the next keys go have priority over the focus: many keys may come at once, over a slow
    #: line or from a clipboard, and the text of a filter must not be taken for commands.
    BINDINGS: ClassVar[list[BindingType]] = [
        replace(key.binding(), priority=key.action == "filter" or key.id.startswith("view.")) for key in EVERYWHERE
    ]
    MODES: ClassVar[dict[str, str | Callable[[], Screen[Any]]]] = {
        "queues": QueuesView,
        "tail": TailView,
        "leases": LeasesView,
        "dead": DeadLettersView,
        "health": HealthView,
        "log": LogView,
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
        paths: DaemonPaths | None = None,
    ) -> None:
        self.config = config or Config()
        self._ascii = [AsciiOnly()] if self.config.ascii else []
        super().__init__(driver_class=driver_class)
        self.terminal: TerminalDriver | None = None
        self.source = source
        self.action_log = log
        self._is_read_only = read_only or self.config.read_only or not source.is_live
        self.last_message = ""
        self.model = Model()
        self.ring = Ring()
        self.admin_events = AdminEvents()
        self.event_rate: float | None = None
        self.clock = clock
        self.skipped_bytes = 0
        self.bad_lines = 0
        self.missing_events = 0
        self.tail_problem = ""
        self.save_root = Path.cwd()
        self.runner = ActionRunner(self)
        self._keys = keymap(self.config.keys, f"{self.config.path}: " if self.config.path else "")
        self.paths = paths
        self._device = name
        self._live = live
        self._refreshed_s = 0.0
        self._wall_ms = wall_ms
        self._last_count: tuple[int, int] | None = None  # event id and engine time of the previous answer

    def on_mount(self) -> None:
        self.set_keymap(self._keys)
        self.source.subscribe("health", "health", {}, HEALTH_EVERY_MS)
        self.source.subscribe("metrics", "metrics", {}, HEALTH_EVERY_MS)
        self.source.subscribe("queues", "list_queues", {"limit": 1000}, QUEUES_EVERY_MS)
        self.source.start()
        if self._live:
            self._look()

    # --- updates ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look for updates again and again. A timer of Textual costs many times as much, mostly for nothing."""
        asyncio.get_running_loop().call_later(DRAIN_S, self._look)
        updates = self._drained()
        if updates:
            self.call_later(self._apply, updates)
        elif time.monotonic() - self._refreshed_s > TICK_S - DRAIN_S / 2 and not self._is_behind:
            self.call_later(self.refresh_view)

    def drain(self) -> None:
        """Apply the updates that have come; none while the terminal has not shown what was drawn before."""
        self._apply(self._drained())

    def _drained(self) -> list[tuple[int, Update]]:
        return [] if self._is_behind else self.source.drain()

    @property
    def _is_behind(self) -> bool:
        return self.terminal is not None and self.terminal.frames_behind > 0

    def _apply(self, updates: list[tuple[int, Update]]) -> None:
        before = self._newest_shown
        for at_ms, update in updates:
            self._apply_one(update, at_ms)
        # The requests of this console are hidden from the tail: the next tick is soon enough for them.
        if any(type(update) is not Lines for _, update in updates) or self._newest_shown != before:
            self.refresh_view()

    @property
    def _newest_shown(self) -> int:
        return self.ring.shown[-1][0] if self.ring.shown else 0

    def _apply_one(self, update: Update, at_ms: int) -> None:
        match update:
            case Answer(name, data):
                self.model.take(name, data, at_ms)
                if name == "queues":
                    self._count_events(data)
            case Failure(name, code, text):
                self.model.fail(name, code, text, at_ms)
            case Lines():
                self.ring.add(update.records)
                self.admin_events.add(update.records)
                self.skipped_bytes += update.skipped_bytes
                self.bad_lines += update.bad_lines
                self.missing_events += update.missing_events
                self.tail_problem = update.problem
            case Outcome():
                self.runner.handle(update)
            case Restart():
                self.model = Model()
                self.ring.clear()
                self.admin_events = AdminEvents()
                self.event_rate = self._last_count = None
                self.skipped_bytes = self.bad_lines = self.missing_events = 0

    def _count_events(self, data: Mapping[str, Any]) -> None:
        """Events per second, from the last event ids of two answers."""
        before = self._last_count
        event, engine_ms = int(data.get("asOfEvent") or 0), int(data.get("engineNowMs") or 0)
        self._last_count = (event, engine_ms)
        if before and event >= before[0] and engine_ms > before[1]:
            self.event_rate = (event - before[0]) * 1000 / (engine_ms - before[1])

    def refresh_view(self) -> None:
        """Bring the current view up to date."""
        self._refreshed_s = time.monotonic()
        if isinstance(self.screen, View):
            self.screen.refresh_view()

    # --- for the screens, see AppProtocol -----------------------------------------------------------------------

    @property
    def refusal(self) -> str:
        if self._is_read_only:
            return tr("read-only: no actions")
        return self.model.member.refusal() if self.model.member else ""

    @property
    def read_only(self) -> bool:
        return bool(self.refusal)

    @property
    def is_stale(self) -> bool:
        return self.model.is_stale(self.clock())

    def headline(self, *parts: Part) -> list[Part]:
        model = self.model
        is_lost = bool(model.problem and not model.problem_code)
        return [
            Part(0, self.source.status_text()),
            Part(0, f"{device_name(model, self._device)} {status_of(model, self.clock())}"),
            *parts,
            Part(1, "RO" if self.read_only else ""),
            Part(1, clean(model.problem) if is_lost else ""),
            *summary_of(model, self.event_rate),
        ]

    def wall_ms(self) -> int:
        return self._wall_ms()

    def key_label(self, key: Key) -> str:
        return key_label(self._keys[key.id]) if key.id in self._keys else key.shown

    def say(self, words: str) -> None:
        self.last_message = words
        self.refresh_view()

    def propose(self, plan: Plan) -> None:
        self.runner.propose(plan)

    # --- drawing ----------------------------------------------------------------------------------------------

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *self._ascii]

    def delay_update(self, delay: float = 0.0) -> None:
        """Draw nothing for a while. Textual's default would be most of the time from a key to its screen."""
        super().delay_update(delay or SETTLE_S)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """A picture of the screen that loads no font from the network."""
        svg = _FONT_FACE.sub("", super().export_screenshot(title=title, simplify=simplify))
        return svg.replace("font-family: Fira Code, monospace", "font-family: monospace")

    # --- keys -------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the keys of a field or a dialog to it."""
        if action in ("filter", "view"):
            return isinstance(self.screen, View) and not isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def action_view(self, name: str) -> None:
        if isinstance(self.screen, View):
            for _ in self.screen_stack[1:]:  # leave what was opened from the view
                self.pop_screen()
            self.switch_mode(name)

    def action_help(self) -> None:
        if isinstance(self.screen, View):
            self.push_screen(Help(self.screen.KEYS, self.KEYS, self.key_label))

    def action_filter(self) -> None:
        if isinstance(self.screen, View):
            self.screen.action_filter()

    def action_copy(self) -> None:
        """Send the key under the cursor to the terminal's clipboard (OSC 52): only ever on request."""
        text = self.screen.copy_text() if isinstance(self.screen, View) else ""
        if text:
            self.copy_to_clipboard(text)
            done = tr("this terminal has no clipboard") if is_plain_terminal() else tr("sent to the clipboard")
            self.say(f"{done}: {clean(text)}")

    def action_undo(self) -> None:
        self.runner.propose_undo()

    def action_snapshot(self) -> None:
        if self.paths is None or not self.source.is_live:
            self.say(tr("there is no daemon to export"))
        elif isinstance(self.screen, View):
            self.runner.propose_snapshot(self.paths, self.save_root)

    def action_command_palette(self) -> None:
        if isinstance(self.screen, View):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The commands of the palette: the views, and the keys of the current one."""
        for key in VIEWS:
            name = key.id.removeprefix("view.")
            yield SystemCommand(tr(key.words), tr("go to this view"), lambda name=name: self.action_view(name))
        everywhere = [key for key in (*self.KEYS, *BACK) if key not in (*VIEWS, PALETTE)]
        lists = LIST if screen.query("RowList") else ()
        for key in (*(screen.KEYS if isinstance(screen, View) else ()), *everywhere, *lists):
            if not (key.changes and self.read_only):
                label = f"{tr('key')} {self.key_label(key)}"
                yield SystemCommand(tr(key.words), label, lambda key=key: self._run_later(screen, key.action))

    def _run_later(self, screen: Screen[Any], action: str) -> None:
        """Do what a key does, where keys go: the focused list, the screen, or the application."""
        self.call_later(self._run, screen, action)

    async def _run(self, screen: Screen[Any], action: str) -> None:
        name = f"action_{action.partition('(')[0]}"
        for target in (screen.focused, screen, self):
            if target is not None and hasattr(target, name):
                await self.run_action(action, target)
                return
