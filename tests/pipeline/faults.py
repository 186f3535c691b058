"""A fleet in which every device has one fault, or something that only looks like one (``well``); and devices to which
anything happens, by a seed. What makes a device is called ``device_...``."""

from __future__ import annotations

import random

from postroom_common.snapshot import Kind

from . import well
from .making import DAY_MS, HOUR_MS, Fields
from .site import MINUTE_MS, Site, Takes


def fleet() -> Takes:
    """All snapshots of all devices."""
    takes = [take for seed in range(3) for take in wild(seed).takes] + wild_clock().takes
    makers = [value for name, value in sorted((vars(well) | globals()).items()) if name.startswith("device_")]
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


def wild_clock() -> Site:
    """A device whose clock swings between two days and one long ago, so that no day's events follow each other; its
    engine time goes back, its machine starts again, and events are lost in between."""
    chance = random.Random(5)
    site = Site("wild-clock")
    right = site.wall_ms
    for turn in range(24):
        site.set_clock(chance.choice((right, right + DAY_MS, 5 * DAY_MS)) + turn * MINUTE_MS)
        site.work(chance.randrange(1, 3))
        if chance.random() < 0.3:
            site.mark(f"boot-{turn}")
        if chance.random() < 0.3:
            site.lose(2)
        if chance.random() < 0.2:
            site.engine_ms -= 15_000
        if turn % 3 == 2:
            site.take()
    return site


def device_storm() -> Site:
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


def device_poison() -> Site:
    site = Site("poison")
    site.hours(2)
    key = site.new()
    for _ in range(4):
        site.take_in(key)
        site.retry(key, "LEASE_EXPIRED")
        site.work(2)
    site.take_in(key)
    site.die(key, "RETRY_LIMIT", "LEASE_EXPIRED")
    dropped = site.new("slow")
    site.take_in(dropped)
    site.drop(dropped, "POISON")
    site.take()
    return site


def device_stuck() -> Site:
    site = Site("stuck")
    key = site.new()
    site.hours(2, messages=12)
    site.take_in(key, "worker-9")
    site.wait(8 * HOUR_MS)
    site.take()
    return site


def device_dead_consumer() -> Site:
    site = Site("dead-consumer")
    site.hours(2, messages=12)
    for _ in range(30):
        site.new()
        site.wait(2 * MINUTE_MS)
    site.take()
    return site


def device_recovered_consumer() -> Site:
    site = Site("recovered-consumer")
    site.hours(2, messages=12)
    keys = []
    for _ in range(30):
        keys.append(site.new())
        site.wait(2 * MINUTE_MS)
    site.finish(keys)
    site.take()
    return site


def device_clock_step() -> Site:
    site = Site("clock-step")
    site.hours(1)
    site.set_clock(site.wall_ms - 2 * HOUR_MS)
    site.hours(1)
    return site


def device_wrong_year() -> Site:
    site = Site("wrong-year")
    site.hours(1)
    right = site.wall_ms
    site.set_clock(5 * DAY_MS)
    site.work(2)
    site.set_clock(right + 20_000)
    site.hours(1)
    return site


def device_power_cut() -> Site:
    site = Site("power-cut")
    site.hours(1)
    site.wait(MINUTE_MS)
    site.mark("boot-2")
    site.hours(1)
    return site


def device_lost_events() -> Site:
    site = Site("lost-events")
    site.hours(1)
    site.work(2)
    site.lose(4)
    site.hours(1)
    return site


def device_reported_hole() -> Site:
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


def device_not_exported() -> Site:
    site = Site("well-not-exported")
    site.hours(1)
    site.work(2)
    site.exported = site._next - 1
    site.wait(HOUR_MS)
    site.hours(1)
    return site


def device_lost_message() -> Site:
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


def device_lost_dead_letter() -> Site:
    site = Site("lost-dead-letter")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    site.die(key, "REJECTED", "")
    site.take()
    del site.messages[key]
    site.hours(1)
    return site


def device_ended_twice() -> Site:
    site = Site("ended-twice")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    site.ack(key)
    site.event("acked", queue="orders", message=key)
    site.take()
    return site


def device_back_after_end() -> Site:
    site = Site("back-after-end")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    site.ack(key)
    site.take_in(key)
    site.take()
    return site


def device_state_after_end() -> Site:
    """The snapshot lists a lease of a message that was acknowledged."""
    site = Site("state-after-end")
    site.hours(1)
    key = site.new()
    site.take_in(key)
    lease = site._lease(key, site.messages[key])
    site.ack(key)
    site.take()
    device, snapshot, lines = site.takes.pop()
    site.takes.append((device, snapshot, [*lines, (Kind.LEASE, lease)]))
    return site


def device_duplicates() -> Site:
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


def device_sudden_deaths() -> Site:
    """More than a day of its past is known, and then many messages die within an hour."""
    site = Site("sudden-deaths")
    site.hours(26, messages=2)
    for _ in range(25):
        key = site.new()
        site.take_in(key)
        site.die(key, "REJECTED", "")
    site.take()
    return site
