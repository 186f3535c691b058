"""A clock that a program drives: time passes only on its order, and stops at each time at which something is due."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom_common.errors import ConfigurationError
from postroom_daemon.platform.clock import Clock, Mark, Now
from postroom_daemon.platform.simulated_clock import Driver, DriverError
from postroom_daemon.root.open_root import OpenRoot, Sources, open_root
from tests.conformance.bench import Bench

HELLO = {"bootId": "test-1", "bootMs": 20_000, "wallMs": 1_000_000}
MINUTE_S = 60.0


class Reins:
    """The driver's end, and at the other a clock that is waited by. When the driver has gone, ``wait`` gives "stop"."""

    def __init__(self) -> None:
        self.mine, self.theirs = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.stop, self._stop_writer = os.pipe()
        self.selector.register(self.stop, selectors.EVENT_READ, "stop")
        self._before = signal.signal(signal.SIGTERM, lambda number, frame: os.write(self._stop_writer, b"x"))
        self.clock = Clock()
        self._drivers: list[Driver] = []

    def driver(self) -> Driver:
        """The daemon's side, which has heard the hello."""
        self._drivers.append(Driver(self.theirs.detach()))
        self.clock = self._drivers[-1].clock()
        return self._drivers[-1]

    def say(self, *orders: dict[str, Any]) -> None:
        self.mine.sendall(b"".join(json.dumps(order).encode() + b"\n" for order in orders))

    def start(self, *orders: dict[str, Any], **hello: Any) -> Driver:
        """The driver's hello and its orders; nothing more will come."""
        self.say(HELLO | hello, *orders)
        self.mine.shutdown(socket.SHUT_WR)
        return self.driver()

    def wait(self, timeout_s: float) -> list[Any]:
        return [key.data for key, _ in self.clock.wait(self.selector, timeout_s)]

    def moments(self, timeout_s: float) -> list[int]:
        """Engine time at each return of a wait, until the driver is gone."""
        found = []
        while self.wait(timeout_s) != ["stop"]:
            found.append(self.clock.now().engine)
        return found

    def reported(self) -> list[dict[str, Any]]:
        """The reports to the driver."""
        return [json.loads(line) for line in self.mine.recv(65536).splitlines()]

    def close(self) -> None:
        self.selector.close()
        signal.signal(signal.SIGTERM, self._before)
        for fd in (self.stop, self._stop_writer):
            os.close(fd)
        self.mine.close()
        self.theirs.close()
        for driver in self._drivers:
            driver.close()


@pytest.fixture
def reins() -> Iterator[Reins]:
    made = Reins()
    yield made
    made.close()


def test_time_stands_still_until_the_driver_lets_it_pass(reins: Reins) -> None:
    reins.start({"advanceMs": 0})
    assert reins.moments(MINUTE_S) == []
    assert reins.clock.now() == (0, 1_000_000)
    assert reins.reported() == [{"bootMs": 20_000, "wallMs": 1_000_000, "engineMs": 0}]


def test_it_stops_at_each_end_of_a_wait_and_reports_to_the_driver_at_the_end(reins: Reins) -> None:
    reins.start({"advanceMs": 150_000})
    assert reins.moments(MINUTE_S) == [60_000, 120_000, 150_000]
    assert reins.reported() == [{"bootMs": 170_000, "wallMs": 1_150_000, "engineMs": 150_000}]


def test_a_wait_for_less_than_a_millisecond_takes_one(reins: Reins) -> None:
    reins.start({"advanceMs": 2})
    assert reins.moments(0.0004) == [1, 2]


def test_orders_that_came_together_are_answered_one_by_one(reins: Reins) -> None:
    reins.start({"advanceMs": 1000}, {"wallMs": 5, "advanceMs": 1000})
    reins.moments(MINUTE_S)
    assert [one["engineMs"] for one in reins.reported()] == [1000, 2000]


def test_while_there_is_work_time_does_not_pass(reins: Reins) -> None:
    reins.start({"advanceMs": 1000})
    assert reins.wait(0) == []
    reader, writer = os.pipe()
    reins.selector.register(reader, selectors.EVENT_READ, "mailbox")
    os.write(writer, b"x")
    assert reins.wait(MINUTE_S) == ["mailbox"]
    assert reins.clock.now().engine == 0
    os.read(reader, 1)
    assert reins.wait(MINUTE_S) == []
    assert reins.clock.now().engine == 1000
    os.close(reader)
    os.close(writer)


def test_a_step_of_the_wall_clock_moves_no_other(reins: Reins) -> None:
    reins.start({"wallMs": 0, "advanceMs": 1000})
    reins.moments(MINUTE_S)
    assert reins.clock.now() == (1000, 1000)
    assert reins.clock.wall_ms() == 1000


def test_timers_follow_it_and_the_machines_own_times_do_not(reins: Reins) -> None:
    reins.start({"advanceMs": 5000}, tickMs=60_000)
    before = reins.clock.elapsed_s()
    reins.moments(MINUTE_S)
    assert reins.clock.elapsed_s() - before == 5.0
    assert reins.clock.tick_s == 60.0
    assert reins.clock.clients_wall_ms(reins.clock.now()) > 1_700_000_000_000


@pytest.mark.parametrize(
    "order",
    [
        "nonsense",
        "[]",
        '{"advanceMs": -1}',
        '{"advanceMs": 1.5}',
        '{"advanceMs": true}',
        '{"advance": 1}',
        '{"wallMs": "0"}',
    ],
)
def test_an_invalid_order_ends_the_daemon(reins: Reins, order: str) -> None:
    reins.say(HELLO)
    reins.driver()
    reins.mine.sendall(order.encode() + b"\n")
    with pytest.raises(DriverError):
        reins.wait(MINUTE_S)


@pytest.mark.parametrize("hello", [{"bootId": "real"}, {"bootId": 7}, {"tickMs": 0}, {"bootMs": None}])
def test_a_driver_that_does_not_give_the_time_is_refused(reins: Reins, hello: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="--test-clock"):
        reins.start(**hello)


def test_a_descriptor_that_is_not_a_socket_is_refused(reins: Reins) -> None:
    fd = os.open(os.devnull, os.O_RDWR)
    with pytest.raises(ConfigurationError, match="is not a socket"):
        Driver(fd)
    os.close(fd)


def test_over_a_reboot_it_continues_like_any_clock(reins: Reins) -> None:
    reins.start(bootId="test-2", bootMs=15_000, wallMs=9000)
    reins.clock.resume(Mark("test-1", 80_000, 3000, 4000), Now(5000, 6000))
    assert reins.clock.now() == (8000, 9000)


@pytest.fixture
def open_driven(bench: Bench, reins: Reins) -> Iterator[Callable[[Driver], OpenRoot]]:
    """Opens the bench's root by a driver's clock."""
    opened: list[OpenRoot] = []

    def open_by(driver: Driver) -> OpenRoot:
        opened.append(open_root(bench.config, Sources(clock=driver.clock)))
        return opened[-1]

    yield open_by
    for root in opened:
        root.close()


def test_a_root_used_in_real_time_is_refused_and_left_alone(
    bench: Bench, reins: Reins, open_driven: Callable[[Driver], OpenRoot]
) -> None:
    bench.publish()
    bench.stop()
    bench.close()
    driver = reins.start()
    with pytest.raises(ConfigurationError, match="machine's own clock"):
        open_driven(driver)
    assert bench.open().do("status", queue="q")["metrics"]["ready"] == 1


def test_health_warns_of_it(bench: Bench, reins: Reins, open_driven: Callable[[Driver], OpenRoot]) -> None:
    assert "testClock" not in bench.do("health")
    bench.close()
    bench.lose_store()
    for path in bench.segments():
        path.unlink()
    root = open_driven(reins.start())
    assert root.vitals.health(root.store, root.clock.now())["testClock"] is True


def test_the_wait_for_the_machine_s_clock_is_a_wait() -> None:
    selector = selectors.DefaultSelector()
    before = time.monotonic()
    assert Clock().wait(selector, 0.01) == []
    assert time.monotonic() > before
    selector.close()
