"""The console of a recording."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.binding import BindingType
from textual.driver import Driver

from ..data.action_log import ActionLog
from ..data.config import Config
from ..data.replay import Replay
from .app import Console
from .keys import EVERYWHERE, REPLAY, Key

#: How far the keys that seek jump.
SEEK_MS: Final = 10_000


class ReplayConsole(Console):
    """Shows a recording. Its clock is the recording's, so that ages are those of its time."""

    KEYS: ClassVar[tuple[Key, ...]] = (*REPLAY, *EVERYWHERE)
    FIRST_KEYS: ClassVar[tuple[Key, ...]] = REPLAY
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in REPLAY]

    def __init__(
        self,
        replay: Replay,
        live: bool = True,
        driver_class: type[Driver] | None = None,
        config: Config | None = None,
    ) -> None:
        super().__init__(
            replay,
            replay.device,
            ActionLog(None),
            config=config,
            clock=replay.now_ms,
            live=live,
            driver_class=driver_class,
            wall_ms=lambda: replay.wall_ms + replay.now_ms(),
        )
        self._replay = replay

    def action_replay_pause(self) -> None:
        self._replay.pause()
        self.refresh_view()

    def action_replay_step(self) -> None:
        self._replay.step()
        self.drain()
        self.refresh_view()

    def action_replay_seek(self, direction: int) -> None:
        self._replay.seek(direction * SEEK_MS)
        self.drain()
        self.refresh_view()

    def action_replay_speed(self, step: int) -> None:
        self._replay.change_speed(step)
        self.refresh_view()
