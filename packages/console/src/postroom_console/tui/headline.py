"""The line at the top: the state of the daemon and what is wrong, in as many words as there is room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..data.member import Member
from ..data.model import Model
from ..data.text import age, clean, cut, figure, size, width
from ..data.views import queues_words
from ..i18n import tr

_SEPARATOR: Final = " | "
#: The disk is low below so many times the bytes that the daemon keeps back.
_LOW_DISK: Final = 10
#: Parts of this rank and below are shortened rather than left out.
KEPT: Final = 1


class Part(NamedTuple):
    """Some words. Where there is no room for all, the part with the greatest ``rank`` is left out first."""

    rank: int
    text: str


def fitted(parts: Sequence[Part], cells: int) -> str:
    """The parts that fit into a line, in their order; the last of those that are always shown may be cut."""
    kept = [part for part in parts if part.text]
    while any(part.rank > KEPT for part in kept) and 1 + width(_SEPARATOR.join(part.text for part in kept)) > cells:
        worst = max(part.rank for part in kept)
        kept.remove(next(part for part in reversed(kept) if part.rank == worst))
    return cut(" " + _SEPARATOR.join(part.text for part in kept), cells)


def status_of(model: Model, now_ms: int) -> str:
    """The state of the daemon, in a word or two."""
    health = model.data("health")
    age_ms = model.age_ms(now_ms)
    if age_ms is None:
        return tr("connecting") if not model.problem else tr("DOWN")
    if model.is_stale(now_ms):
        return f"{tr('STALE')} {age(age_ms)}"
    if health.get("draining"):
        return tr("DRAINING")
    if not health:
        return tr("connecting")
    return tr("RUN") if health.get("status") == "ok" else tr("DEGRADED")


def summary_of(model: Model, event_rate: float | None) -> list[Part]:
    """The node of a cluster, the queues, the mailbox, the disk, and the events per second. What is wrong has a lower
    rank."""
    parts = [*_cluster_parts(model.member), *_queue_parts(model)]
    parts += [*_mailbox_parts(model.data("metrics")), *_disk_parts(model.data("health"))]
    if event_rate is not None:
        parts.append(Part(10, f"{figure(event_rate)} {tr('ev/s')}"))
    return parts


def _cluster_parts(member: Member | None) -> list[Part]:
    return [Part(2, member.words() + ("!" if member.problem else ""))] if member else []


def _queue_parts(model: Model) -> list[Part]:
    queues = list(model.queues.values())
    parts = [Part(2 if model.has_more_queues else 8, queues_words(model))]
    paused = sum(queue.is_paused for queue in queues)
    if paused:
        parts.append(Part(2, f"{figure(paused)} {tr('PAUSED')}"))
    dead = sum(queue.dead for queue in queues)
    parts.append(Part(2 if dead else 7, f"{tr('dead')} {figure(dead)}{'!' if dead else ''}"))
    ages_ms = [queue.oldest_ready_ms for queue in queues if queue.oldest_ready_ms is not None]
    if ages_ms:
        is_old = any(queue.is_old for queue in queues)
        parts.append(Part(3 if is_old else 6, f"{tr('oldest')} {age(max(ages_ms))}{'!' if is_old else ''}"))
    return parts


def _mailbox_parts(metrics: Mapping[str, Any]) -> list[Part]:
    mailbox = metrics.get("mailbox")
    if not mailbox:
        return []
    waiting, set_aside = int(mailbox.get("waiting") or 0), int(mailbox.get("setAside") or 0)
    words = f"{tr('mailbox')} {figure(waiting)}"
    return [Part(4, f"{words} {tr('set aside')} {figure(set_aside)}!") if set_aside else Part(5, words)]


def _disk_parts(health: Mapping[str, Any]) -> list[Part]:
    disk = (health.get("checks") or {}).get("disk") or {}
    if "freeBytes" not in disk:
        return []
    free, reserve = int(disk["freeBytes"]), int(disk.get("reserveBytes") or 0)
    is_low = free < reserve * _LOW_DISK or not disk.get("ok", True)
    return [Part(2 if is_low else 9, f"{tr('disk')} {size(free)} {tr('free')}{'!' if is_low else ''}")]


def device_name(model: Model, name: str) -> str:
    """The device's own name, or else ``name``."""
    return clean(str(model.data("health").get("nodeId") or name))
