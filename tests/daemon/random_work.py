"""Random requests that change the state of a bench in every way."""

from __future__ import annotations

from random import Random

from tests.conformance.bench import Bench


def work(bench: Bench, random: Random) -> None:
    """One group of something that changes the state."""
    bench.clocks.pass_ms(random.choice([1, 500, 40_000]))
    queue = random.choice(list("abcde"))
    match random.randrange(10):
        case 8:
            bench.send(
                "set_schedule", name=random.choice("st"), queue=queue, cron=random.choice(["@every 30s", "1 * * * *"])
            )
            if not random.randrange(3):
                bench.send("delete_schedule", name="s")
        case 9:
            mode = random.choice(["window", "while-present"])
            bench.do("set_policy", queue=queue, policy={"deduplication": {"mode": mode, "windowSec": 60}})
            bench.do("publish", queue=queue, message="fact", deduplicationKey=random.choice("xyz"))
        case 0 | 1 | 2:
            bench.publish(
                queue, message=random.randbytes(9).hex(), priority=random.randrange(3), delayMs=random.choice([0, 900])
            )
        case 3 | 4:
            bench.send("consume_next", queue=queue)
        case 5 | 6:
            held = [one for one in bench.store.pages.entries("", 1000) if one.lease_id]
            if held:
                entry = random.choice(held)
                name = random.choice(["ack", "release", "nack", "nack"])
                retry = {"requeue": random.random() < 0.7, "reason": "told"} if name == "nack" else {}
                bench.send(name, messageKey=entry.key, leaseId=entry.lease_id, **retry)
        case 7:
            bench.send(random.choice(["pause", "resume"]), queue=queue, operation="publish")
            retry = {"limit": random.randrange(1, 4), "returnTo": random.choice(["end", "place"])}
            bench.send("set_policy", queue=queue, policy={"retry": retry | {"nackCounts": random.random() < 0.7}})
            bench.send("resume", queue=queue, operation="publish")


def more_work(bench: Bench, random: Random) -> None:
    """One group of something that gives messages other facts."""
    queue, messages = random.choice(list("abcde")), bench.store.pages.entries("", 1000)
    key = random.choice(messages).key if messages else ""
    match random.randrange(15):
        case 0:
            bench.send("hold", messageKey=key)
        case 1:
            bench.send("unhold", messageKey=key)
        case 2:
            bench.publish(queue, ttlMs=random.choice([90_000, 10**9]), orderingKey=random.choice("xy"))
        case 3:
            bench.publish(queue, targetConsumerId="c2", targetFallbackMs=random.choice([60_000, 10**9]))
        case 4:
            bench.publish(queue, deliverAt=bench.clocks.wall_ms + random.choice([100, 10**8]), retryLimit=2)
        case 5:
            bench.send(random.choice(["quarantine_dlq", "reprocess_dlq"]), messageKey=key)
        case 6:
            bench.send("consume_next", queue=f"{queue}.dlq", visibilityTimeoutSec=600)
        case 7:
            bench.send("publish", queue=queue, message="late", delayMs=10**7)
        case 9:
            bench.do("set_policy", queue=queue, policy={"gatherWindowSec": random.choice([0, 2, 60])})
            parts = [{"message": random.randbytes(9).hex(), "attributes": {"n": number}} for number in range(3)]
            bench.send("publish_batch", queue=queue, messages=parts[random.randrange(3) :])
        case 10:
            keep = random.choice(["none", "headers", "message"])
            policy = {"orderedSec": random.choice([0, 5]), "done": {"keep": keep, "maxMessages": random.choice([0, 3])}}
            bench.do("set_policy", queue=queue, policy=policy)
        case 11:
            bench.send(random.choice(["activate", "abandon"]), messageKey=key, anyHolder=True)
        case 12:
            more = {"name": random.choice(["", "one", "two"]), "noPriority": random.random() < 0.5}
            bench.send("draft", queue=queue, parts=["a", "b"][random.randrange(2) :], **more)
        case 13:
            name = random.choice([key, key, f"msg:{queue}:one"])
            bench.send("set", messageKey=name, part=random.choice("ab"), message=random.randbytes(9).hex())
        case 14:
            bench.send("set", messageKey=key, consumerId=random.choice(["c1", "c2"]), message=random.randbytes(9).hex())
        case 8:
            command = random.choice(["move", "reprocess_dlq", "purge"])
            bench.send(command, queue=queue, limit=2, **({"to": random.choice("abcde")} if command != "purge" else {}))
