"""A clock in a program's hand, for tests and simulations: time passes when its driver says so, and only then.

Where a daemon would wait for time to pass, this clock moves on instead, to each thing that falls due in turn, as far as
it was told to. So a day takes as long as the work in it, and what is due at a moment happens at that moment.
docs/testing-clock.md has the orders and their answers.
"""

from __future__ import annotations

import json
import logging
import math
import signal
import socket
import time
from collections import deque
from selectors import EVENT_READ, BaseSelector, SelectorKey
from typing import Any, Final

from postroom_common.errors import ConfigurationError, PostroomError

from .clock import Clock, Mark, Now

log = logging.getLogger(__name__)

#: Every boot id of such a clock begins so: the journal tells for ever that its times were driven.
BOOT_ID_PREFIX: Final = "test-"
#: The driver has so long (s) to say what time it is.
_HELLO_S: Final = 30.0
#: A clock mark, an event's time: as JavaScript reads them.
_HIGHEST_MS: Final = 2**53 - 1
_LINE_BYTES: Final = 4096
_LOWEST: Final = {"bootMs": 0, "wallMs": 0, "tickMs": 1, "advanceMs": 0}


class DriverError(PostroomError):
    """What the driver has said is no order."""


class Driver:
    """The connection to the program that drives the time. ``fd`` is a stream socket that was inherited.

    Raises ``ConfigurationError`` when the driver does not say what time it is.
    """

    def __init__(self, fd: int) -> None:
        self.boot_ms = self.wall_ms = 0
        self.tick_ms = 1000
        self._buffer = b""
        self._orders: deque[dict[str, Any]] = deque()
        self._asked = False
        self._left_ms = 0
        self.gone = False
        try:
            self._socket = socket.socket(fileno=fd)
        except OSError as error:
            raise ConfigurationError(f"--test-clock: descriptor {fd} is no socket: {error.strerror}") from None
        try:
            self._socket.set_inheritable(False)
            self._socket.settimeout(_HELLO_S)
            while not self._orders:
                self._receive()
                if self.gone:
                    raise DriverError("the driver is gone")
            hello: dict[str, Any] = self._orders.popleft()
            self.boot_id = hello.pop("bootId", "")
            self.boot_ms, self.wall_ms, self.tick_ms = hello["bootMs"], hello["wallMs"], hello.get("tickMs", 1000)
            if type(self.boot_id) is not str or not self.boot_id.startswith(BOOT_ID_PREFIX):
                raise DriverError(f"bootId begins with {BOOT_ID_PREFIX!r}")
        except (OSError, DriverError, KeyError) as error:
            self.close()
            raise ConfigurationError(f"--test-clock: expected the driver's time: {error}") from None
        self._socket.setblocking(False)

    def close(self) -> None:
        """Let go of the driver."""
        self._socket.close()

    def clock(self) -> Clock:
        """The clock of a run of the daemon."""
        return DrivenClock(self)

    def wait(self, selector: BaseSelector, timeout_s: float, clock: Clock) -> list[tuple[SelectorKey, int]]:
        """As ``Clock.wait``: what is ready goes first, then time moves, then the driver is told."""
        if not self.gone and self._socket not in selector.get_map():
            selector.register(self._socket, EVENT_READ)
        while True:
            busy = timeout_s <= 0 or self._left_ms or self._asked or self._orders
            ready = selector.select(0 if busy else None)
            others = [one for one in ready if one[0].fileobj is not self._socket]
            if others or timeout_s <= 0:
                return others
            if self._left_ms:
                self._move(min(self._left_ms, max(1, math.ceil(timeout_s * 1000 - 1e-3))))
                return []
            if self._asked:
                self._asked = False
                self._tell(clock.now())
            elif self._orders:
                self._obey(self._orders.popleft())
            elif ready:
                self._listen(selector)

    def _move(self, ms: int) -> None:
        self._left_ms -= ms
        self.boot_ms += ms
        self.wall_ms += ms

    def _obey(self, order: dict[str, Any]) -> None:
        self.wall_ms = order.get("wallMs", self.wall_ms)
        self._left_ms = order.get("advanceMs", 0)
        self._asked = True

    def _listen(self, selector: BaseSelector) -> None:
        self._receive()
        if self.gone:
            selector.unregister(self._socket)
            log.warning("the driver of the test clock is gone")
            signal.raise_signal(signal.SIGTERM)  # time stands still for good: nothing more can happen

    def _receive(self) -> None:
        """Take what has come. Raises ``DriverError``."""
        try:
            data = self._socket.recv(_LINE_BYTES)
        except ConnectionError:
            data = b""
        self.gone = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._orders.extend(_read(line) for line in lines)

    def _tell(self, now: Now) -> None:
        told = {"bootMs": self.boot_ms, "wallMs": now.wall, "engineMs": now.engine}
        try:
            self._socket.sendall(json.dumps(told).encode() + b"\n")
        except OSError as error:  # that it is gone, the next look tells
            log.warning("the driver of the test clock does not listen: %s", error)


class DrivenClock(Clock):
    """Engine time as a driver lets it pass. Deadlines in requests, and the stamps of files, are by the machine's own
    clock: clients know of no other."""

    is_driven = True

    def __init__(self, driver: Driver) -> None:
        super().__init__(lambda: driver.boot_ms, lambda: driver.wall_ms, driver.boot_id)
        self._driver = driver
        self.tick_s = driver.tick_ms / 1000

    def resume(self, mark: Mark | None, last: Now) -> None:
        """As ``Clock.resume``. Raises ``ConfigurationError`` on a root that has lived in real time: what its engine
        time is moved on by can never be taken back."""
        if mark and mark.boot_id and not mark.boot_id.startswith(BOOT_ID_PREFIX):
            raise ConfigurationError(
                "--test-clock: this root has been served by the machine's own clock; such a clock is for other roots"
            )
        super().resume(mark, last)

    def elapsed_s(self) -> float:
        """As ``Clock.elapsed_s``."""
        return self._driver.boot_ms / 1000

    def clients_wall_ms(self, now: Now) -> int:
        """As ``Clock.clients_wall_ms``: the machine's."""
        return time.time_ns() // 1_000_000

    def wait(self, selector: BaseSelector, timeout_s: float) -> list[tuple[SelectorKey, int]]:
        """As ``Clock.wait``: instead of waiting, time moves on."""
        return self._driver.wait(selector, timeout_s, self)


def _read(line: bytes) -> dict[str, Any]:
    try:
        order = json.loads(line)
    except ValueError:
        order = None
    if type(order) is not dict:
        raise DriverError(f"expected an object, not {line[:100]!r}")
    for name, value in order.items():
        if name == "bootId":
            continue
        if name not in _LOWEST:
            raise DriverError(f"there is no {name!r}")
        if type(value) is not int or not _LOWEST[name] <= value <= _HIGHEST_MS:
            raise DriverError(f"{name}: expected an integer of {_LOWEST[name]} or more")
    return order
