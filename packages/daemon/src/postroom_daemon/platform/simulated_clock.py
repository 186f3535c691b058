"""A clock that another program drives, for tests and simulations: time passes only when the driver says so.

Where the daemon would wait, this clock advances to the next thing that is due, as far as the driver allows. So a day
takes as long as the work in it, and everything happens at exactly the time at which it is due. docs/testing-clock.md
describes the orders and their answers.
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

#: Prefix of the boot ids of such a clock, so that a journal shows for ever that its times were simulated.
BOOT_ID_PREFIX: Final = "test-"
#: Longest wait (s) for the driver to send the time.
_HELLO_S: Final = 30.0
#: The largest integer that JavaScript represents exactly; times are numbers in JSON.
_HIGHEST_MS: Final = 2**53 - 1
_LINE_BYTES: Final = 4096
_LOWEST: Final = {"bootMs": 0, "wallMs": 0, "tickMs": 1, "advanceMs": 0}


class DriverError(PostroomError):
    """The driver sent something that is not an order."""


class Driver:
    """The connection to the program that drives the time. ``fd`` is an inherited stream socket.

    Raises ``ConfigurationError`` if the driver does not send the time.
    """

    def __init__(self, fd: int) -> None:
        self.boot_ms = self.wall_ms = 0
        self.tick_ms = 1000
        self._buffer = b""
        self._orders: deque[dict[str, Any]] = deque()
        self._owes_answer = False
        self._left_ms = 0
        self.gone = False
        try:
            self._socket = socket.socket(fileno=fd)
        except OSError as error:
            raise ConfigurationError(f"--test-clock: descriptor {fd} is not a socket: {error.strerror}") from None
        try:
            self._socket.set_inheritable(False)
            self._socket.settimeout(_HELLO_S)
            while not self._orders:
                self._receive()
                if self.gone:
                    raise DriverError("the driver has closed the connection")
            hello: dict[str, Any] = self._orders.popleft()
            self.boot_id = hello.pop("bootId", "")
            self.boot_ms, self.wall_ms, self.tick_ms = hello["bootMs"], hello["wallMs"], hello.get("tickMs", 1000)
            if type(self.boot_id) is not str or not self.boot_id.startswith(BOOT_ID_PREFIX):
                raise DriverError(f"bootId must begin with {BOOT_ID_PREFIX!r}")
        except (OSError, DriverError, KeyError) as error:
            self.close()
            raise ConfigurationError(f"--test-clock: expected the driver's time: {error}") from None
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def clock(self) -> Clock:
        """The clock of a run of the daemon."""
        return SimulatedClock(self)

    def wait(self, selector: BaseSelector, timeout_s: float, clock: Clock) -> list[tuple[SelectorKey, int]]:
        """``Clock.wait`` of this driver's clock: ready descriptors come first, then time advances, then the driver gets
        its answer."""
        if not self.gone and self._socket not in selector.get_map():
            selector.register(self._socket, EVENT_READ)
        while True:
            busy = timeout_s <= 0 or self._left_ms or self._owes_answer or self._orders
            ready = selector.select(0 if busy else None)
            others = [item for item in ready if item[0].fileobj is not self._socket]
            if others or timeout_s <= 0:
                return others
            if self._left_ms:
                self._advance(min(self._left_ms, max(1, math.ceil(timeout_s * 1000 - 1e-3))))
                return []
            if self._owes_answer:
                self._owes_answer = False
                self._send_answer(clock.now())
            elif self._orders:
                self._obey(self._orders.popleft())
            elif ready:
                self._listen(selector)

    def _advance(self, ms: int) -> None:
        self._left_ms -= ms
        self.boot_ms += ms
        self.wall_ms += ms

    def _obey(self, order: dict[str, Any]) -> None:
        self.wall_ms = order.get("wallMs", self.wall_ms)
        self._left_ms = order.get("advanceMs", 0)
        self._owes_answer = True

    def _listen(self, selector: BaseSelector) -> None:
        self._receive()
        if self.gone:
            selector.unregister(self._socket)
            log.warning("the driver of the test clock has closed the connection")
            signal.raise_signal(signal.SIGTERM)  # time never passes again, so nothing more can happen

    def _receive(self) -> None:
        """Read what has arrived. Raises ``DriverError``."""
        try:
            data = self._socket.recv(_LINE_BYTES)
        except ConnectionError:
            data = b""
        self.gone = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self._orders.extend(_read(line) for line in lines)

    def _send_answer(self, now: Now) -> None:
        answer = {"bootMs": self.boot_ms, "wallMs": now.wall, "engineMs": now.engine}
        try:
            self._socket.sendall(json.dumps(answer).encode() + b"\n")
        except OSError as error:  # the next read notices if it has closed the connection
            log.warning("cannot answer the driver of the test clock: %s", error)


class SimulatedClock(Clock):
    """Engine time as a driver lets it pass. Deadlines in requests and timestamps of files follow the machine's own
    clock, the only one that clients have."""

    is_driven = True

    def __init__(self, driver: Driver) -> None:
        super().__init__(lambda: driver.boot_ms, lambda: driver.wall_ms, driver.boot_id)
        self._driver = driver
        self.tick_s = driver.tick_ms / 1000

    def resume(self, mark: Mark | None, last: Now) -> None:
        """Continue the journal's engine time. Raises ``ConfigurationError`` for a root that has run in real time,
        because engine time can never be set back."""
        if mark and mark.boot_id and not mark.boot_id.startswith(BOOT_ID_PREFIX):
            raise ConfigurationError(
                "--test-clock: this root has run by the machine's own clock; use a test clock with another root"
            )
        super().resume(mark, last)

    def elapsed_s(self) -> float:
        """Seconds of the driver's time since its boot."""
        return self._driver.boot_ms / 1000

    def clients_wall_ms(self, now: Now) -> int:
        """The machine's wall time."""
        return time.time_ns() // 1_000_000

    def wait(self, selector: BaseSelector, timeout_s: float) -> list[tuple[SelectorKey, int]]:
        """Advance the time instead of waiting. Returns the ready descriptors."""
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
            raise DriverError(f"unknown key {name!r}")
        if type(value) is not int or not _LOWEST[name] <= value <= _HIGHEST_MS:
            raise DriverError(f"{name}: expected an integer of {_LOWEST[name]} or more")
    return order
