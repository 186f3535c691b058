"""The daemon's health and metrics: counters, durations, rates, and probes of journal, store and disk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from postroom_common.errors import CommandError
from postroom_common.events import Event, EventType
from postroom_common.protocol import PROTOCOL_VERSION, Command, ErrorCode

from ..config.settings import Settings
from ..journal.history import MessageHistory, history_slices
from ..journal.journal import Journal
from ..journal.reserve import Reserve
from ..model.consumers import Consumers
from ..model.facts import FACT_DAMAGE, FACT_LOSSES, LOSSES_LIMIT, damage_text
from ..model.request import Answer, Request
from ..platform.clock import Clock, Now
from ..platform.quarantine import Quarantine
from ..stores.base import Store
from ..stores.errors import StoreError
from .counters import RATE_SECONDS, Counters
from .metrics.collect import collect
from .metrics.queues import every_queue
from .traffic import TrafficLog

_VERSION = version("postroom-daemon")
#: Period (ns) for which the free space is cached. A fast disk writes a megabyte in it; the reserve has many.
FREE_CHECK_NS = 10_000_000
#: How long (engine ms) ``health`` shows that the disk took nothing, if it was not tried again.
REFUSED_MS = 60_000
#: What an operator does about a loss; see docs/incidents.md.
_ADVICE = (
    "run postroomd verify; then stop the daemon, and apply postroomd repair, restore a backup, or accept the loss with"
    " postroomd accept-loss"
)
#: The events behind each rate.
_RATES = {"publish": EventType.PUBLISHED, "consume": EventType.LEASED, "ack": EventType.ACKED}
#: The names of the command counters, some as in the C++ system, whose ``dlq`` counts both dead-letter commands.
_COMMAND_NAMES = {command: command.value for command in Command} | {
    Command.CONSUME_NEXT: "consume",
    Command.LIST_DLQ: "dlq",
    Command.REPROCESS_DLQ: "dlq",
}
#: The error counters of the C++ system. Like it, they count every error that has no counter of its own as "internal".
_ERROR_NAMES: dict[str, str] = {
    ErrorCode.PARSE_ERROR: "parse",
    ErrorCode.INVALID_REQUEST: "parse",
    ErrorCode.VALIDATION_FAILED: "validation",
    ErrorCode.TIMEOUT: "timeout",
}
_OTHER_ERRORS = "internal"
#: By the beginning of its reason: the code with which a rejected request is counted.
_REJECTED = (
    ("JSON", ErrorCode.PARSE_ERROR),
    ("deadline exceeded", ErrorCode.TIMEOUT),
    ("not executed", ErrorCode.QUOTA_EXCEEDED),
)


class DaemonVitals:
    """Counters since the start, and probes; one instance per run of the daemon.

    ``doors`` has a function per door that returns its figures, ``door_checks`` one that returns its check for
    ``health``; ``waiting`` returns the number of waiting requests.
    ``quota_refusals`` counts refusals by quota. ``checkpointed`` is the last event that the store has certainly made
    durable.
    """

    def __init__(
        self,
        clock: Clock,
        journal: Journal,
        traffic: TrafficLog | None,
        reserve: Reserve,
        settings: Settings,
        missing: list[tuple[int, int]],
        quarantine: Quarantine,
    ) -> None:
        self.doors: dict[str, Callable[[], dict[str, int]]] = {}
        self.door_checks: dict[str, Callable[[], dict[str, Any]]] = {}
        self.waiting: Callable[[], int] = int
        self.consumers = Consumers()
        self.quota_refusals: Mapping[str, int] = {}
        self._clock = clock
        self.journal = journal
        self._traffic = traffic
        self.reserve = reserve
        self.settings = settings
        self._min_free_bytes = settings.storage_min_free_bytes
        self._missing = missing
        self.quarantine = quarantine
        self.started, self.started_wall = clock.now()
        self.counters = Counters()
        self.version = _VERSION
        self.checkpointed = 0
        self._refused, self._refused_ms = "", 0  # why the disk took nothing of a group, and when (engine ms)
        self._free_bytes = 0
        self._free_checked_ns = 0

    def reload(self, settings: Settings) -> None:
        """Apply other settings."""
        self.settings = settings
        self._min_free_bytes = settings.storage_min_free_bytes

    # --- counting ---------------------------------------------------------------------------------------------

    def count_answers(self, answers: Sequence[tuple[Request, Answer]], now_ns: int) -> None:
        """Count requests that are answered at ``now_ns`` (monotonic), and log their traffic lines."""
        wall_ms = self._clock.wall_ms()
        self.counters.count_answers(answers, now_ns, wall_ms)
        if self._traffic:
            self._traffic.add_all(answers, now_ns, wall_ms)

    def count_unanswered(self, reason: str) -> None:
        """Count a request that was rejected without an answer."""
        code = next((code for start, code in _REJECTED if reason.startswith(start)), ErrorCode.INVALID_REQUEST)
        self.counters.count_rejected(code, self._clock.wall_ms())

    def count_foreign(self, reason: str, request: Request) -> None:
        """Count a request that was rejected because it used the client id of another user. It gets a traffic line as if
        it had been answered."""
        now = self._clock.now()
        self.counters.count_rejected(ErrorCode.FORBIDDEN, now.wall)
        if self._traffic:
            request.engine = now.engine
            refused = Answer(error=CommandError(ErrorCode.FORBIDDEN, reason))
            self._traffic.add_all([(request, refused)], request.started_ns, now.wall)

    def count_group(self, requests: int, events: list[Event], now: Now) -> None:
        """Count a group and its events."""
        if events:
            self._refused = ""
        self.counters.count_group(requests, events, now.engine)

    def note_refused(self, why: str) -> None:
        """The disk took nothing of a group."""
        self._refused, self._refused_ms = why, self._clock.now().engine

    def history(self, key: str, limit: int) -> Generator[None, None, MessageHistory]:
        """The events of a message that the journal still has, as the result of a generator of steps. Raises
        ``OSError``."""
        return history_slices(self.settings.journal_root, key, limit)

    def has_space_to_publish(self) -> bool:
        """Whether the disk has at least ``storage.minFreeBytes``; checked at most once in ``FREE_CHECK_NS``."""
        now_ns = time.monotonic_ns()
        if now_ns - self._free_checked_ns > FREE_CHECK_NS or not self._free_checked_ns:
            self._free_checked_ns = now_ns
            self._free_bytes = self._disk_free()
        return self._free_bytes >= self._min_free_bytes

    def _disk_free(self) -> int:
        try:
            disk = os.statvfs(self.journal.root)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    # --- answers ----------------------------------------------------------------------------------------------

    def health(self, store: Store, now: Now) -> dict[str, Any]:
        """The answer to ``health``: probes journal, store and disk, and has a check for each door."""
        checks = {
            "journal": _check(self.journal.probe),
            "store": _check(store.disk.probe),
            "disk": self._check_disk(),
            **{name: check() for name, check in self.door_checks.items()},
        }
        if checks["store"]["ok"] and store.applied < self.journal.last_id:
            checks["store"] = {"ok": False, "error": f"at event {store.applied}, journal at {self.journal.last_id}"}
        readable = checks["store"]["ok"]
        self._add_losses(checks["journal"], store.facts.get(FACT_LOSSES) or [] if readable else [])
        _add_damage(checks["store"], store.facts.get(FACT_DAMAGE) or [] if readable else [])
        reply = {
            "status": "ok" if all(check["ok"] for check in checks.values()) else "degraded",
            "timestamp": now.wall,
            "checks": checks,
            "nodeId": self.settings.node_id,
            "backend": self.settings.backend,
            "durability": self.settings.journal_durability,
            "version": _VERSION,
            "protocolVersion": PROTOCOL_VERSION,
        }
        return reply | {"testClock": True} if self._clock.is_driven else reply

    def _add_losses(self, check: dict[str, Any], losses: list[list[int]]) -> None:
        """Add missing events. Those that this start found missing are reported until the next one; those that the store
        has never folded, until an operator accepts their loss."""
        missing = [*losses, *([first, last] for first, last in self._missing if [first, last] not in losses)]
        if missing:
            check["missingEvents"] = missing[:LOSSES_LIMIT]
        if losses and check["ok"]:
            lost = sum(last - first + 1 for first, last in losses)
            check["ok"] = False
            check["error"] = (
                f"{lost} events are lost, the first is {losses[0][0]}: messages may be missing, and ended ones"
                f" may be back; {_ADVICE}"
            )

    def _check_disk(self) -> dict[str, Any]:
        free = self._disk_free()
        check: dict[str, Any] = {
            "ok": free >= self._min_free_bytes,
            "freeBytes": free,
            "reserveBytes": self._min_free_bytes,
            "heldBackBytes": self.reserve.bytes,
        }
        quarantined = self.quarantine.total_bytes()
        if quarantined:
            check["quarantineBytes"] = quarantined
        if not check["ok"]:
            check["error"] = "free space is below storage.minFreeBytes: publishes are refused"
        elif self._refused and self._clock.now().engine - self._refused_ms < REFUSED_MS:
            check |= {"ok": False, "error": f"the disk takes nothing: {self._refused}"}
        return check

    def metrics(self, store: Store, now: Now) -> dict[str, Any]:
        """The answer to ``metrics``: the sections of the C++ system, and further ones."""
        counters = self.counters
        total, failed = counters.requests, counters.failed
        commands = {"publish": 0, "consume": 0, "ack": 0, "nack": 0, "status": 0, "health": 0, "dlq": 0}
        for command, count in counters.commands.items():
            name = _COMMAND_NAMES[command]
            commands[name] = commands.get(name, 0) + count
        errors = dict.fromkeys((*_ERROR_NAMES.values(), _OTHER_ERRORS), 0)
        for code, count in counters.codes.items():
            errors[_ERROR_NAMES.get(code, _OTHER_ERRORS)] += count
        return {
            "timestamp": now.wall,
            "uptimeMs": now.engine - self.started,
            "requests": {"total": total, "success": total - failed, "error": failed},
            "commands": commands,
            "errors": errors,
            "errorCodes": {str(code): count for code, count in counters.codes.items()},
            "timing": {
                "totalProcessingMs": counters.request_ns.total // 1_000_000,
                "avgProcessingMs": round(counters.request_ns.total / total / 1e6, 3) if total else 0.0,
                "lastProcessingMs": round(counters.last_ns / 1e6, 3),
                "lastRequestMs": counters.last_wall_ms,
            },
            "leaseToAckMs": counters.lease_to_ack.to_wire(),
            "rates": self.rates(now),
            "groups": counters.groups(),
            **self.door_figures(),
            "quotaRefusals": dict(self.quota_refusals),
            "trafficLinesLost": self.traffic_lines_lost,
            "trafficLinesHeldBack": self.traffic_lines_suppressed,
        }

    def exposition(
        self, store: Store, now: Now, shows: Callable[[str], bool] = every_queue
    ) -> Generator[None, None, str]:
        """All metrics in the format of Prometheus, as the result of a generator of steps; see ``metrics.collect``."""
        return collect(self, store, now, shows)

    def door_figures(self) -> dict[str, dict[str, int]]:
        """The figures of each door by name. Those of the mailbox, which every version reports, include the number of
        waiting requests."""
        figures = {name: of_door() for name, of_door in self.doors.items()}
        return figures | {"mailbox": figures.get("mailbox", {}) | {"parked": self.waiting()}}

    def rates(self, now: Now) -> dict[str, float]:
        """Events per second over the last minute, or since the start if that is shorter."""
        span_s = max(1.0, min(RATE_SECONDS, (now.engine - self.started) / 1000))
        sums = self.counters.recent_events(now.engine)
        return {name: round(sums[type_] / span_s, 2) for name, type_ in _RATES.items()}

    @property
    def traffic_lines_lost(self) -> int:
        """Number of lines of the traffic log that the disk did not accept."""
        return self._traffic.lost if self._traffic else 0

    @property
    def traffic_lines_suppressed(self) -> int:
        """Number of lines of the traffic log that were suppressed because a user was refused again and again."""
        return self._traffic.refusals.suppressed if self._traffic else 0


def _add_damage(check: dict[str, Any], damage: list[dict[str, Any]]) -> None:
    if damage:
        check["damage"] = damage
        further = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
        check["ok"] = False
        check["error"] = f"{damage_text(damage[0])}{further}; {_ADVICE}"


def _check(probe: Callable[[], None]) -> dict[str, Any]:
    try:
        probe()
    except (OSError, StoreError) as error:
        return {"ok": False, "error": str(error)}
    return {"ok": True}
