"""A simulated device: its machine, the time that passes for it, and what its programs have done."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postroom_client import Client, ServerError

from .export import export
from .ledger import Ledger
from .machine import BOOT_MS, Machine

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
#: When a fleet begins: a Monday, midnight.
BEGIN_WALL_MS = 1_772_409_600_000
#: Small, so that a day's journal has many segments.
_SEGMENT_BYTES = 65_536

TELEMETRY, COMMANDS, ALARMS, SELF_TEST = "telemetry", "commands", "alarms", "selftest"
QUEUES: dict[str, dict[str, Any]] = {
    TELEMETRY: {"visibilityTimeoutSec": 300},
    COMMANDS: {
        "visibilityTimeoutSec": 120,
        "ttlSec": 12 * 3600,
        "deduplication": {"mode": "window", "windowSec": 600},
    },
    ALARMS: {"visibilityTimeoutSec": 60, "retry": {"limit": 8, "backoff": "fixed", "initialDelaySec": 5}},
    SELF_TEST: {},
}


class Device:
    """One device. ``now`` is milliseconds since the fleet began, whatever the device's own clocks show.

    Programs are functions that are called ``at`` a time; while the power is off they are not called, and nothing is
    done for them later: they ask ``is_on`` and go by ``when_booted``. ``speed`` is how many times faster than the
    machine's clock time may pass; 0: as fast as it can.
    """

    def __init__(self, name: str, directory: Path, seed: str, length_ms: int, every_ms: int, speed: float = 0) -> None:
        self.name = name
        self.directory = directory
        self.root = directory / "root"
        self.length_ms = length_ms
        self.random = random.Random(seed)
        self.now = 0
        self.ledger = Ledger()
        self.machine = Machine(name, self.root)
        self.when_booted: list[Callable[[], None]] = []
        self.off: list[list[int]] = []
        self.snapshots: list[Path] = []
        self.ends: dict[str, dict[str, Any]] = {}
        self._every_ms = every_ms
        self._speed = speed
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._clients: dict[str, Client] = {}

    # --- time ---------------------------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        """What a right clock shows."""
        return BEGIN_WALL_MS + self.now

    @property
    def hour(self) -> float:
        """The time of day, 0 to 24."""
        return self.now % DAY_MS / HOUR_MS

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Do something at a moment, or right away if that is past."""
        heapq.heappush(self._agenda, (max(self.now, int(moment)), next(self._numbers), do))

    def after(self, ms: float, do: Callable[[], None]) -> None:
        """Do something so much later."""
        self.at(self.now + ms, do)

    def part(self, fraction: float) -> int:
        """The moment at which so much of the whole time is over."""
        return int(self.length_ms * fraction)

    def run(self) -> None:
        """Let the whole time pass, and stop the device in order."""
        self._configure()
        self.at(self.length_ms, self._finish)
        for moment in range(self._every_ms, self.length_ms, self._every_ms):
            self.at(moment, self.export)
        began = time.monotonic()
        try:
            self.machine.boot(self.wall_ms)
            while self._agenda and self._agenda[0][0] <= self.length_ms:
                moment, _, do = heapq.heappop(self._agenda)
                if moment > self.now:
                    self.machine.advance(moment - self.now)
                    self.now = moment
                    if self._speed:
                        time.sleep(max(0.0, moment / SECOND_MS / self._speed - (time.monotonic() - began)))
                do()
        except BaseException:
            self.machine.cut()
            raise
        finally:
            self._close_clients()

    def _finish(self) -> None:
        if self.is_on:
            self.ask_ends()
            self.export()

    def _configure(self) -> None:
        self.root.mkdir(parents=True)
        tree = {
            "nodeId": self.name,
            "ipc": {"root": "./ipc"},
            "journal": {"segmentBytes": _SEGMENT_BYTES},
            "queues": [{"name": name, "policy": policy} for name, policy in QUEUES.items()],
        }
        (self.root / "config.json").write_text(json.dumps(tree, indent=2) + "\n")

    # --- power --------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether the daemon runs."""
        return self.machine.is_on

    @property
    def boots(self) -> int:
        """How often the machine was switched on."""
        return self.machine.boots

    def cut_power(self, for_ms: float, wall_ms: Callable[[], int] | None = None) -> None:
        """A power cut. ``wall_ms`` is what the clock shows when the power is back, if it is not the right time."""
        self.machine.cut()
        self.off.append([self.now, self.length_ms])
        self.after(for_ms, lambda: self._power_back(wall_ms))

    def _power_back(self, wall_ms: Callable[[], int] | None) -> None:
        self.off[-1][1] = self.now
        self.machine.boot(wall_ms() if wall_ms else self.wall_ms)
        self.greet()

    def greet(self) -> None:
        """The daemon is there anew: its programs begin."""
        for begin in self.when_booted:
            self.after(BOOT_MS, begin)

    def restart(self, meanwhile: Callable[[], None]) -> None:
        """Stop the daemon, do something to its files, start it again: no time passes."""
        self.machine.stop()
        meanwhile()
        self.machine.start(self.wall_ms)
        self.greet()

    # --- programs -----------------------------------------------------------------------------------------------

    def client(self, name: str) -> Client:
        """The client of a program."""
        if name not in self._clients:
            self._clients[name] = Client(str(self.root / "ipc"), client_id=name)
        return self._clients[name]

    def _close_clients(self) -> None:
        for client in self._clients.values():
            client.close()

    def publish(self, program: str, queue: str, bodies: list[Any], **fields: Any) -> list[str]:
        """Publish bodies as one batch; the keys of those that were stored."""
        items = [{"message": body, **fields} for body in bodies]
        keys = []
        for result in self.client(program).publish_batch(items, queue)["results"]:
            if result.get("duplicate"):
                self.ledger.duplicate(queue)
            else:
                keys.append(result["messageKey"])
                self.ledger.published(queue, keys[-1], self.now, self.boots)
        return keys

    def export(self) -> None:
        """A snapshot into ``snapshots/``, if the device is on."""
        if self.is_on:
            self.snapshots.append(export(self.root, self.directory.parent / "snapshots" / self.name))

    def ask_ends(self) -> None:
        """Ask the daemon how things stand, for ``ends``: by queue, messages by state, dead letters by reason."""
        client = self.client("truth")
        for queue in QUEUES:
            try:
                metrics = client.status(queue)["metrics"]
            except ServerError:
                continue  # nothing was ever published to it
            reasons = client.count_dlq(queue)["byReason"] if metrics["dlq"] else {}
            counts = {state: metrics[state] for state in ("ready", "inflight", "delayed", "held")}
            self.ends[queue] = counts | {"dead": metrics["dlq"], "deadByReason": reasons}
