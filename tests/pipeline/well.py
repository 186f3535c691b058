"""Devices without a fault, of which some look as if they had one: what makes each is called ``device_...``."""

from __future__ import annotations

import copy

from postroom_common.snapshot import Kind

from .making import HOUR_MS
from .site import MINUTE_MS, Site


def device_well() -> list[Site]:
    sites = [Site(f"well-{number}") for number in range(3)]
    for site in sites:
        site.hours()
        key = site.new()
        site.take_in(key)
        site.retry(key, "NACKED")
        site.take_in(key)
        site.ack(key)
        site.take()
    return sites


def device_uses_everything() -> Site:
    """Moves, removals, limits and times that are over: all as somebody wanted it."""
    site = Site("well-uses-everything")
    site.hours(1)
    moved, purged, expired = site.new(), site.new(), site.new()
    site.move(moved, "orders.slow")
    site.take_in(moved)
    site.drop(purged, "PURGED")
    site.take()
    site.drop(expired, "MESSAGE_EXPIRED")
    site.drop(site.new("orders.slow"), "QUEUE_FULL")
    site.ack(moved)
    site.take()
    return site


def device_has_two_nodes() -> Site:
    """A cluster: both nodes deliver snapshots, and the time of the one that waits goes on without events."""
    site = Site("well-has-two-nodes")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    waiting = copy.deepcopy(site)
    site.wait(1_000)
    site.ack(key)
    site.take(node="a", role="leads")
    waiting.wait(2 * HOUR_MS)
    waiting.snapshots, waiting.exported = 100, 0
    waiting.take(node="b", role="waits")
    site.takes.append(waiting.takes[-1])
    return site


def device_boots_in_order() -> Site:
    site = Site("well-boots")
    site.hours(1)
    site.mark("boot-1", clean=True)
    site.wait(8 * HOUR_MS)
    site.mark("boot-2")
    site.hours(1)
    return site


def device_cuts_slices() -> Site:
    """``--max-size`` ends slices early; the next one goes on there."""
    site = Site("well-cut")
    site.work(6)
    _cut(site, 9)
    site.work(2)
    _cut(site, 15)
    site.take()
    return site


def device_is_cut_short() -> Site:
    """The last slice is cut: what came after it is not known yet."""
    site = Site("well-cut-short")
    site.work(6)
    _cut(site, 12)
    return site


def _cut(site: Site, last: int) -> None:
    begin = site.exported
    site.take()
    device, snapshot, lines = site.takes.pop()
    kept = [(kind, fields) for kind, fields in lines if kind is not Kind.EVENT or fields["event"] <= last]
    kept[0][1].update(lastEvent=last, cut=True, previousEvent=begin or None)
    site.exported = last
    site.takes.append((device, snapshot, kept))


def device_restored() -> list[Site]:
    """Set back to an earlier state: messages that were done after it are there again, and are done again."""
    site = Site("well-restored")
    site.hours(1)
    keys = [site.new() for _ in range(4)]
    backup = copy.deepcopy(site)
    backup.takes = []
    for key in keys:
        site.take_in(key)
        site.ack(key)
    site.take()
    backup.epoch, backup.exported = 2, backup._next - 1
    backup.snapshots = 10
    backup.wall_ms, backup.engine_ms = site.wall_ms + HOUR_MS, site.engine_ms + HOUR_MS
    backup.event("epoch_started", ext={"reason": "restored"})
    backup.mark("boot-1")
    for key in keys[:3]:
        backup.take_in(key)
        backup.ack(key)
    backup.takes = [("", "", [])]
    backup.take()
    backup.takes = backup.takes[1:]
    return [site, backup]


def device_goes_on_unseen() -> Site:
    """What came after the last consistent snapshot is not compared with it."""
    site = Site("well-goes-on")
    site.hours(1)
    site.take_in(site.new())
    site.take(consistent=False)
    return site


def device_was_working() -> Site:
    """A message was published and leased before the first event that anybody exported."""
    site = Site("well-was-working")
    site.take_in(site.new())
    site.exported = site._next - 1
    site.work(1)
    site.take()
    for kind, fields in site.takes[0][2]:
        if kind is Kind.QUEUE:
            fields["opening"] = 1
    return site


def device_imports() -> Site:
    """Messages were brought in, with what happened to them elsewhere at the times of that root: nothing failed here.
    Before, the ids of another system's data were left out."""
    site = Site("well-imported")
    site.lose(70)
    site.event("gap", ext={"after": site._next - 71, "next": site._next, "unused": True})
    site.hours(1)
    first = len(site.events)
    keys = [site.new() for _ in range(8)]
    for key in keys * 3:
        site.lease(key, "worker-elsewhere")
        site.retry(key)
    site.event("imported")
    *brought, imported = site.events[first:]
    for event in brought:
        event["requestEnd"] = imported["event"]
        event["engineMs"] -= HOUR_MS
    site.finish(keys)
    site.take()
    return site


def device_pauses() -> Site:
    """Consuming was paused by hand: the backlog grows, and nobody is dead."""
    site = Site("well-paused")
    site.hours(1)
    site.event("paused", queue="orders", ext={"operation": "consume"})
    for _ in range(40):
        site.new()
        site.wait(MINUTE_MS * 3)
    site.take()
    return site


def device_changes_consumer() -> Site:
    """Another consumer took over before the backlog grew."""
    site = Site("well-replaced")
    site.hours(1)
    site.wait(HOUR_MS)
    site.work(3, consumer="worker-2")
    site.hours(0)
    for _ in range(25):
        site.new()
    site.wait(HOUR_MS)
    site.take_in("msg:well-replaced-1-0010", "worker-2")
    site.take()
    return site


def device_repeats_bodies() -> Site:
    """A queue whose bodies are the same again and again."""
    site = Site("well-repeats")
    site.hours(1)
    for number in range(30):
        site.new("alive", payloadDigest="00" * 15 + f"{number % 3:02d}")
        site.wait(5_000)
    site.take()
    return site
