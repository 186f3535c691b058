"""A new configuration for a running daemon: what applies at once, and what waits for the next start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from postroom_common.errors import PostroomError

from ..config.config import Config
from ..config.settings import ATTRIBUTES
from ..doors.base import Door
from ..platform import logs
from ..policy.policies import Policies
from ..root.open_root import OpenRoot, group_limits

log = logging.getLogger(__name__)

#: Settings that a reload applies, besides policies and access rules. All others wait for the next start.
RELOADED: Final = frozenset(
    {
        "ipc.pollIntervalMs",
        "ipc.responseMaxAgeMs",
        "ipc.deadMaxFiles",
        "ipc.deadMaxAgeHours",
        "ipc.tempMaxAgeMs",
        "lane.connections",
        "lane.userConnections",
        "lane.requests",
        "lane.frameMs",
        "lane.userBytes",
        "gateway.users",
        "lease.visibilityTimeoutSec",
        "journal.intervalMs",
        "journal.segmentBytes",
        "journal.retentionHours",
        "journal.maxBytes",
        "traffic.sampleEvery",
        "traffic.refusalsPerMinute",
        "limits.groupRequests",
        "limits.groupBytes",
        "limits.userPendingRequests",
        "limits.userPendingBytes",
        "limits.userRequestsPerSec",
        "limits.userWaits",
        "limits.userLeases",
        "storage.minFreeBytes",
        "snapshots.enabled",
        "snapshots.retentionHours",
        "snapshots.maxFiles",
        "snapshots.maxBytes",
        "metrics.file",
        "metrics.intervalSec",
        "metrics.queues",
        "log.level",
        "log.perMinute",
    }
)


class Reloading:
    """The configuration in force. ``read`` reads it again from the same place; it raises ``PostroomError`` for a
    configuration that cannot be used."""

    def __init__(self, config: Config, read: Callable[[], Config]) -> None:
        self.config = config
        self._read = read

    def reload(self) -> str:
        """Read the configuration again; what can be applied at once is in force from now on. Returns why it was
        refused, and then nothing has changed; "" if it was not."""
        try:
            wanted = self._read()
        except (PostroomError, OSError) as error:
            log.error("reload refused, the configuration stays as it was: %s", error)
            return str(error)
        for warning in wanted.warnings:
            log.warning("%s", warning)
        before, self.config = self.config, merged(self.config, wanted)
        now = self.config.values()
        changes = [
            f"{key} {_shown(old)} → {_shown(now[key])}" for key, old in before.values().items() if old != now[key]
        ]
        changes += [name for name, part in _PARTS.items() if part(before) != part(self.config)]
        log.info("reloaded: %s", ", ".join(changes) or "nothing has changed")
        for key in waiting(self.config, wanted):
            log.warning("reloaded, but %s stays %s until the next start", key, _shown(now[key]))
        return ""


#: The parts of a configuration beside its settings.
_PARTS: Final[dict[str, Callable[[Config], object]]] = {
    "policyDefaults": lambda config: config.defaults,
    "queues": lambda config: (config.queues, [(one.text, one.policy, one.schema) for one in config.patterns]),
    "access and clients": lambda config: config.access.to_wire(),
    "quotas": lambda config: config.quotas,
}


def merged(before: Config, wanted: Config) -> Config:
    """The configuration that is in force after a reload of ``wanted``."""
    names = [ATTRIBUTES[key] for key in RELOADED]
    settings = replace(before.settings, **{name: getattr(wanted.settings, name) for name in names})
    return replace(wanted, root=before.root, settings=settings)


def waiting(in_force: Config, wanted: Config) -> list[str]:
    """Keys of settings that wait for the next start."""
    now = in_force.values()
    return [key for key, value in wanted.values().items() if value != now[key]]


def put_in_force(config: Config, root: OpenRoot, doors: Sequence[Door]) -> None:
    """Apply ``config`` to every part of a running daemon."""
    settings = config.settings
    logs.reload(settings)
    for door in doors:
        door.reload(settings)
    root.vitals.reload(settings)
    root.journal.segment_bytes = settings.journal_segment_bytes
    if root.traffic:
        root.traffic.sample_every = settings.traffic_sample_every
        root.traffic.refusals.per_minute = settings.traffic_refusals_per_minute
    root.broker.reload(Policies(config.defaults, config.queues, config.patterns), group_limits(settings))
    root.access.use(config.access, config.accounts)
    root.quotas.reload(settings, config.quotas)


def _shown(value: object) -> str:
    return "empty" if value == "" else str(value)
