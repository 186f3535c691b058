"""A fleet in which every device has one fault, or something that only looks like one; and devices to which anything
happens, by a seed."""

from __future__ import annotations

import copy
import random
from typing import Any

from postroom_common.snapshot import Kind

from .making import DAY_MS, HOUR_MS, Device, Fields, snapshot_id
from .silver import Lines

MINUTE_MS = 60_000
Takes = list[tuple[str, str, Lines]]


class Site(Device):
    """A device whose snapshots are kept as lines. It works as it should until a test makes it do otherwise."""

    def __init__(self, name: str, **fields: Any) -> None:
        super().__init__(name, **fields)
        self.takes: Takes = []
        self.asked: dict[str, int] = {}
        self._keys = 0
        self.mark("boot-1")

    def mark(self, boot: str, **fields: Any) -> None:
        self.event("clock_marked", bootId=boot, bootMs=self.engine_ms, **fields)

    def take(self, **header: Any) -> None:
        """A snapshot, as ``--since last`` writes it."""
        self.snapshots += 1
        lines = self.lines(header=header)
        for kind, fields in lines:
            if kind is Kind.QUEUE and not self.takes:
                fields["opening"] = 0
            if kind is Kind.CONSUMER:
                fields["askedEngineMs"] = self.asked.get(fields["consumer"])
            if kind is Kind.DEAD:
                fields.pop("phase", None)
        told = [(kind, copy.deepcopy(fields)) for kind, fields in lines if kind is not Kind.METRIC]
        self.takes.append((self.name, snapshot_id(f"{self.name}/{self.epoch}/{self.snapshots}"), told))

    def new(self, queue: str = "orders", **fields: Any) -> str:
        """Publish a message; its key."""
        self._keys += 1
        key = f"msg:{self.name}-{self.epoch}-{self._keys:04d}"
        self.publish(key, queue, **fields)
        return key

    def take_in(self, key: str, consumer: str = "worker-1") -> None:
        self.asked[consumer] = self.engine_ms
        self.lease(key, consumer)

    def work(self, messages: int = 6, queue: str = "orders", consumer: str = "worker-1") -> None:
        """Messages that are published, worked on and done, ten seconds each."""
        for _ in range(messages):
            key = self.new(queue)
            self.wait(1_000)
            self.take_in(key, consumer)
            self.wait(9_000)
            self.ack(key)

    def hours(self, count: int = 3, messages: int = 6) -> None:
        """Hours of ordinary work, each with a snapshot at its end."""
        for _ in range(count):
            self.work(messages)
            self.wait(HOUR_MS - messages * 10_000)
            self.take()


def fleet() -> Takes:
    """All snapshots of all devices."""
    takes = [take for seed in range(3) for take in wild(seed).takes]
    makers = [value for name, value in sorted(globals().items()) if name.startswith("_device_")]
    for make in makers:
        made = make()
        for site in made if isinstance(made, list) else [made]:
            takes += site.takes
    return takes


def wild(seed: int, steps: int = 240) -> Site:
    """A device to which anything happens: all fates of messages, lost events, clocks that are set, slow hands."""
    chance = random.Random(seed)
    site = Site(f"wild-{seed}")

    def some(state: str) -> str | None:
        keys = sorted(key for key, message in site.messages.items() if message.state == state)
        return chance.choice(keys) if keys else None

    for step in range(steps):
        site.wait(chance.choice((5, 200, 4_000, 90_000, 20 * MINUTE_MS)))
        ready, held, dead = some("ready"), some("inflight"), some("dead")
        if (act := chance.random()) < 0.3 or not ready:
            digest = {"payloadDigest": f"{chance.randrange(5):032x}"} if chance.random() < 0.1 else {}
            site.new(chance.choice(("orders", "slow")), **digest)
        elif act < 0.55:
            site.take_in(ready, f"worker-{chance.randrange(3)}")
        elif act < 0.85 and held:
            end = chance.random()
            if end < 0.6:
                site.ack(held)
            elif end < 0.85:
                site.retry(held, chance.choice(("NACKED", "LEASE_EXPIRED")))
            else:
                site.die(held, chance.choice(("REJECTED", "RETRY_LIMIT", "POISON")), chance.choice(("", "NACKED")))
        elif act < 0.88:
            site.drop(ready, chance.choice(("PURGED", "MESSAGE_EXPIRED", "QUEUE_FULL", "REJECTED")))
        elif act < 0.91:
            site.move(ready, chance.choice(("orders", "slow", "aside")))
        elif act < 0.95 and dead:
            chance.choice((site.reprocess, site.drop))(dead)
        elif act < 0.97:
            site.lose(chance.randrange(3))
        else:
            site.set_clock(site.wall_ms + chance.choice((-HOUR_MS, 3_000, DAY_MS)))
        if step % 40 == 39:
            site.take()
    return site


def _device_well() -> list[Site]:
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


def _device_uses_everything() -> Site:
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


def _device_boots_in_order() -> Site:
    site = Site("well-boots")
    site.hours(1)
    site.mark("boot-1", clean=True)
    site.wait(8 * HOUR_MS)
    site.mark("boot-2")
    site.hours(1)
    return site


def _device_cuts_slices() -> Site:
    """``--max-size`` ends slices early; the next one goes on there."""
    site = Site("well-cut")
    site.work(6)
    _cut(site, 9)
    site.work(2)
    _cut(site, 15)
    site.take()
    return site


def _device_is_cut_short() -> Site:
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


def _device_restored() -> list[Site]:
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


def _device_imports() -> Site:
    """Messages were brought in, with what happened to them elsewhere at the times of that root: nothing failed here."""
    site = Site("well-imported")
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
    for key in keys:
        site.take_in(key)
        site.wait(1_000)
        site.ack(key)
    site.take()
    return site


def _device_pauses() -> Site:
    """Consuming was paused by hand: the backlog grows, and nobody is dead."""
    site = Site("well-paused")
    site.hours(1)
    site.event("paused", queue="orders", ext={"operation": "consume"})
    for _ in range(40):
        site.new()
        site.wait(MINUTE_MS * 3)
    site.take()
    return site


def _device_changes_consumer() -> Site:
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


def _device_repeats_bodies() -> Site:
    """A queue whose bodies are the same again and again."""
    site = Site("well-repeats")
    site.hours(1)
    for number in range(30):
        site.new("alive", payloadDigest="00" * 15 + f"{number % 3:02d}")
        site.wait(5_000)
    site.take()
    return site


def _device_storm() -> Site:
    site = Site("storm")
    site.hours()
    keys = [site.new() for _ in range(5)]
    for _ in range(6):
        for key in keys:
            site.take_in(key)
            site.wait(500)
            site.retry(key, "NACKED")
    site.take()
    return site


def _device_poison() -> Site:
    site = Site("poison")
    site.hours(2)
    key = site.new()
    for _ in range(4):
        site.take_in(key)
        site.retry(key, "LEASE_EXPIRED")
        site.work(2)
    site.take_in(key)
    site.die(key, "RETRY_LIMIT", "LEASE_EXPIRED")
    site.take()
    return site


def _device_stuck() -> Site:
    site = Site("stuck")
    key = site.new()
    site.hours(2, messages=12)
    site.take_in(key, "worker-9")
    site.wait(8 * HOUR_MS)
    site.take()
    return site


def _device_dead_consumer() -> Site:
    site = Site("dead-consumer")
    site.hours(2, messages=12)
    for _ in range(30):
        site.new()
        site.wait(2 * MINUTE_MS)
    site.take()
    return site


def _device_recovered_consumer() -> Site:
    site = Site("recovered-consumer")
    site.hours(2, messages=12)
    keys = []
    for _ in range(30):
        keys.append(site.new())
        site.wait(2 * MINUTE_MS)
    for key in keys:
        site.take_in(key)
        site.wait(1_000)
        site.ack(key)
    site.take()
    return site


def _device_clock_step() -> Site:
    site = Site("clock-step")
    site.hours(1)
    site.set_clock(site.wall_ms - 2 * HOUR_MS)
    site.hours(1)
    return site


def _device_wrong_year() -> Site:
    site = Site("wrong-year")
    site.hours(1)
    right = site.wall_ms
    site.set_clock(5 * DAY_MS)
    site.work(2)
    site.set_clock(right + 20_000)
    site.hours(1)
    return site


def _device_power_cut() -> Site:
    site = Site("power-cut")
    site.hours(1)
    site.wait(MINUTE_MS)
    site.mark("boot-2")
    site.hours(1)
    return site


def _device_lost_events() -> Site:
    site = Site("lost-events")
    site.hours(1)
    site.work(2)
    site.lose(4)
    site.hours(1)
    return site


def _device_reported_hole() -> Site:
    """A segment of the journal is gone, and the device says so; what it did to messages is not known."""
    site = Site("reported-hole")
    site.hours(1)
    first = site._next
    site.work(2)
    gone = [event for event in site.events if event["event"] >= first]
    site.events = site.events[: -len(gone)]
    site.hours(0)
    site.work(2)
    site.take(holes=[[first, gone[-1]["event"]]])
    return site


def _device_not_exported() -> Site:
    site = Site("well-not-exported")
    site.hours(1)
    site.work(2)
    site.exported = site._next - 1
    site.wait(HOUR_MS)
    site.hours(1)
    return site


def _device_lost_message() -> Site:
    site = Site("lost-message")
    site.hours(1)
    site.new()
    for _ in range(3):
        site.new("slow")
    site.take()
    first = min(key for key, message in site.messages.items() if message.queue == "slow")
    del site.messages[first]
    site.hours(1)
    return site


def _device_lost_dead_letter() -> Site:
    site = Site("lost-dead-letter")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    site.die(key, "REJECTED", "")
    site.take()
    del site.messages[key]
    site.hours(1)
    return site


def _device_ended_twice() -> Site:
    site = Site("ended-twice")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    site.ack(key)
    site.event("acked", queue="orders", message=key)
    site.take()
    return site


def _device_back_after_end() -> Site:
    site = Site("back-after-end")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    site.ack(key)
    site.take_in(key)
    site.take()
    return site


def _device_duplicates() -> Site:
    site = Site("duplicates")
    site.hours(3, messages=12)
    body: Fields = {"payloadDigest": "ab" * 16}
    for _ in range(2):
        key = site.new(**body)
        site.wait(3_000)
        site.take_in(key)
        site.ack(key)
    site.event("answered", ext={"reply": {"as": "duplicate", "of": key}}, client="press")
    site.take()
    return site


def _device_sudden_deaths() -> Site:
    """More than a day of its past is known, and then many messages die within an hour."""
    site = Site("sudden-deaths")
    site.hours(26, messages=2)
    for _ in range(25):
        key = site.new()
        site.take_in(key)
        site.die(key, "REJECTED", "")
    site.take()
    return site
