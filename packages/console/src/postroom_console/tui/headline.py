"""The line at the top: how the daemon is and what is wrong, in as many words as the screen has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..data.model import Model
from ..data.text import age, clean, cut, figure, size, width
from ..data.views import queues_words
from ..i18n import tr

_BETWEEN: Final = " | "
#: Free bytes below which the disk is named in front of quieter things: ten times what the daemon keeps back.
_LOW_DISK: Final = 10

#: Parts of this rank and below are cut rather than left out.
KEPT: Final = 1


class Part(NamedTuple):
    """Some words. Where there is no room for all, the part with the greatest ``rank`` goes first."""

    rank: int
    text: str


def fitted(parts: Sequence[Part], cells: int) -> str:
    """The parts that fit, in their order; of those that are never left out, what fits of them."""
    kept = [part for part in parts if part.text]
    while any(part.rank > KEPT for part in kept) and 1 + width(_BETWEEN.join(part.text for part in kept)) > cells:
        worst = max(part.rank for part in kept)
        kept.remove(next(part for part in reversed(kept) if part.rank == worst))
    return cut(" " + _BETWEEN.join(part.text for part in kept), cells)


def state_of_daemon(model: Model, now_ms: int) -> str:
    """How the daemon is, in a word or two."""
    health = _told(model, "health")
    heard = model.age_ms(now_ms)
    if heard is None:
        return tr("connecting") if not model.problem else tr("DOWN")
    if model.is_stale(now_ms):
        return f"{tr('STALE')} {age(heard)}"
    if health.get("draining"):
        return tr("DRAINING")
    if not health:
        return tr("connecting")
    return tr("RUN") if health.get("status") == "ok" else tr("DEGRADED")


def facts(model: Model, event_rate: float | None) -> list[Part]:
    """What is known of the queues, of the mailbox, of the disk, and of how much happens."""
    queues = list(model.queues.values())
    paused = sum(queue.is_paused for queue in queues)
    dead = sum(queue.dead for queue in queues)
    old = [queue for queue in queues if queue.oldest_ready_ms is not None]
    oldest = max((queue.oldest_ready_ms or 0 for queue in old), default=0)
    alarm = "!" if any(queue.is_old for queue in old) else ""
    parts = [
        Part(2 if model.has_more_queues else 8, queues_words(model)),
        Part(2, f"{figure(paused)} {tr('PAUSED')}" if paused else ""),
        Part(2 if dead else 7, f"{tr('dead')} {figure(dead)}{'!' if dead else ''}"),
        Part(3 if alarm else 6, f"{tr('oldest')} {age(oldest)}{alarm}" if old else ""),
    ]
    mailbox = _told(model, "metrics").get("mailbox") or {}
    if mailbox:
        waiting, aside = int(mailbox.get("waiting") or 0), int(mailbox.get("setAside") or 0)
        words = f"{tr('mailbox')} {figure(waiting)}" + (f" {tr('set aside')} {figure(aside)}!" if aside else "")
        parts.append(Part(4 if aside else 5, words))
    disk = (_told(model, "health").get("checks") or {}).get("disk") or {}
    if "freeBytes" in disk:
        free, reserve = int(disk["freeBytes"]), int(disk.get("reserveBytes") or 0)
        is_low = free < reserve * _LOW_DISK or not disk.get("ok", True)
        parts.append(Part(2 if is_low else 9, f"{tr('disk')} {size(free)} {tr('free')}{'!' if is_low else ''}"))
    if event_rate is not None:
        parts.append(Part(10, f"{figure(event_rate)} {tr('ev/s')}"))
    return parts


def _told(model: Model, name: str) -> Mapping[str, Any]:
    told = model.slices.get(name)
    return told.data if told else {}


def device_of(model: Model, name: str) -> str:
    """What the device is called: by itself, or else by the place where its files are."""
    return clean(str(_told(model, "health").get("nodeId") or name))
