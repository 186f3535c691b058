"""The scenarios in which faults are injected: each command, and each thing the daemon does without a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.crash.server import Client, Fields

Scenario = Callable[[Client], None]

#: Size at which the scenario ``roll`` starts a new segment.
ROLL_BYTES: Final = 6000


def prepare(client: Client) -> None:
    """Make messages in every state, before the scenario. The first three leases stay open."""
    for number in range(7):
        client.ask("publish", queue="q", message=f"body {number} " + "x" * 60)
    client.ask("publish", queue="q", message="later", delayMs=3_600_000)
    client.ask("publish", queue="other", message="alone")
    for _ in range(3):
        client.ask("consume_next", queue="q", consumerId="holder")
    doomed = client.ask("consume_next", queue="q").data["lease"]
    client.settle(doomed, "nack", requeue=False, reason="never")
    done = client.ask("consume_next", queue="q").data["lease"]
    client.settle(done, "ack")
    assert all(sent.code == "OK" for sent in client.sent)


def _open_leases(client: Client) -> list[Fields]:
    """The leases that the client got and has not tried to settle."""
    ended = {
        item["leaseId"]
        for sent in client.sent
        if sent.command.startswith(("ack", "nack", "release"))
        for item in sent.payload.get("items", [sent.payload])
    }
    leases = [sent.data["lease"] for sent in client.sent if sent.data.get("message")]
    return [lease for lease in leases if lease["leaseId"] not in ended]


def _settle(client: Client, which: int, command: str, **fields: Any) -> None:
    """ack, nack, release or extend_lease of an open lease. Does nothing if a fault has prevented the lease."""
    for lease in _open_leases(client)[which:][:1]:
        client.settle(lease, command, **fields)


def _settling(command: str, **fields: Any) -> Scenario:
    return lambda client: _settle(client, 0, command, **fields)


def _asking(command: str, **payload: Any) -> Scenario:
    return lambda client: void(client.ask(command, **payload))


def void(_: object) -> None:
    """Scenarios have no result."""


def _group(client: Client) -> None:
    """Several requests in one group. A full disk must not prevent all of them."""
    lease = _open_leases(client)[0]
    client.put("publish", queue="q", message="first of the group", priority=2)
    client.put("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    client.put("publish", queue="new", message="y" * 5000)
    client.put("status", queue="q")
    client.turn()


def _reprocess(client: Client) -> None:
    dead = next(sent for sent in client.sent if sent.command == "nack")
    client.ask("reprocess_dlq", messageKey=dead.payload["messageKey"])


def _expire(client: Client) -> None:
    client.server.pass_ms(60_000)
    client.turn()


def _wait(client: Client) -> None:
    """A waiting request is served by a publish."""
    client.ask("consume_next", queue="waited", waitMs=60_000)
    client.ask("publish", queue="waited", message="for who waits")


def _checkpoint(client: Client) -> None:
    client.ask("publish", queue="q", message="before the checkpoint")
    client.server.checkpoint()
    _settle(client, 0, "ack")
    client.server.checkpoint()


def _restart(client: Client) -> None:
    client.server.stop()
    client.turn()


def _crash(client: Client) -> None:
    client.server.close()
    client.turn()


def _roll(client: Client) -> None:
    for number in range(4):
        client.ask("publish", queue="q", message=f"{number}" * 2000)


def _import(client: Client) -> None:
    """Import messages of another root, in three states."""
    message = {"queue": "came", "createdMs": 1_795_811_000_000, "createdEngineMs": 5, "published": 7}
    texts = {"ready": "came ready", "delayed": "came early", "dead": "came dead"}
    messages = [
        message | {"key": f"msg:came:{state}", "state": state, "message": {"parts": [{"text": text}]}}
        for state, text in texts.items()
    ]
    messages[1]["dueEngineMs"] = 20_000
    messages[2]["deadEngineMs"] = 9_000
    client.ask("import_state", engineMs=10_000, wallMs=1_795_811_100_000, messages=messages)


def _key(client: Client, which: int) -> str:
    """The key of a message that was published before the scenario."""
    published = [sent for sent in client.sent if sent.command == "publish"]
    return str(published[which].data["messageKey"])


def _hold(client: Client) -> None:
    client.ask("hold", messageKey=_key(client, 6), reason="a look")


def _unhold(client: Client) -> None:
    _hold(client)
    client.ask("unhold", messageKey=_key(client, 6))


def _drain(client: Client) -> None:
    client.ask("drain", draining=True)
    client.ask("drain", draining=False)


def _quarantine(client: Client) -> None:
    dead = next(sent for sent in client.sent if sent.command == "nack")
    client.ask("quarantine_dlq", messageKey=dead.payload["messageKey"], reason="a look")


def _delete_queue(client: Client) -> None:
    """Delete a queue after its only message was moved away."""
    client.ask("move", messageKey=_key(client, 8), to="q")
    client.ask("delete_queue", queue="other")


def _gather(client: Client) -> None:
    """Parts of two messages, the first of which is delivered and returned."""
    client.ask("set_policy", queue="gathered", policy={"gatherWindowSec": 10})
    client.ask("publish", queue="gathered", message="part 0")
    client.ask("publish", queue="gathered", message="part 1 " + "x" * 300)
    client.server.checkpoint()
    client.ask("publish_batch", queue="gathered", messages=[{"message": "part 2"}, {"message": "part 3"}])
    client.server.pass_ms(10_000)
    client.turn()
    lease = client.ask("consume_next", queue="gathered", consumerId="me").data.get("lease")
    if lease:
        client.settle(lease, "nack", requeue=True, reason="later")
    client.ask("publish", queue="gathered", message="of another message")
    client.ask("publish", queue="gathered", message="its part")


def _activate(client: Client) -> None:
    """Leases in their first phase: one is activated and settled, one released, one ends."""
    client.ask("set_policy", queue="ordered", policy={"orderedSec": 100})
    for number in range(3):
        client.ask("publish", queue="ordered", message=f"ordered {number}")
    client.server.checkpoint()
    leases = [
        client.ask("consume_next", queue="ordered", consumerId="me", orderedSec=seconds).data.get("lease")
        for seconds in (100, 100, 10)
    ]
    if leases[0] and client.settle(leases[0], "activate").data:
        client.settle(leases[0], "nack", requeue=True, reason="later")
    if leases[1]:
        client.settle(leases[1], "release")
    client.server.pass_ms(10_000)
    client.turn()


def _abandon(client: Client) -> None:
    """Outcomes that are kept: a message that is done, one that is abandoned, and one that was both."""
    if client.ask("set_policy", queue="kept", policy={"done": {"keep": "message"}}).code != "OK":
        return  # it comes again later
    keys = [client.ask("publish", queue="kept", message=f"kept {number}").data.get("messageKey") for number in range(4)]
    client.server.checkpoint()
    for _ in range(2):
        lease = client.ask("consume_next", queue="kept", consumerId="me").data.get("lease")
        if not lease:  # it comes again later: then the message must not have been given up
            return
        client.settle(lease, "ack")
    for key in (keys[0], keys[2]):
        if key:
            client.ask("abandon", messageKey=key, reason="no longer needed")


def _headers(client: Client) -> None:
    """Outcomes of which only the headers are kept: a draft that is done, and a message that is given up."""
    client.ask("set_policy", queue="kept", policy={"done": {"keep": "headers"}, "abandon": {"keep": "headers"}})
    key = client.ask("draft", queue="kept", parts=["only"], name="first").data.get("messageKey")
    if not key:  # it comes again later, and is the last one
        return
    whole = client.ask("set", messageKey=key, part="only", message="the only part " + "x" * 300)
    client.server.checkpoint()
    lease = client.ask("consume_next", queue="kept", consumerId="me").data.get("lease")
    if lease and whole.code == "OK":
        client.settle(lease, "ack")
    other = client.ask("publish", queue="kept", message="a body " + "y" * 300).data.get("messageKey")
    if other:
        client.ask("abandon", messageKey=other, reason="no longer needed")


def _in_log(command: str, **payload: Any) -> Scenario:
    """A scenario about a log with records and a reader."""

    def scenario(client: Client) -> None:
        steps: dict[str, Fields] = {
            "create_queue": {"createWith": {"kind": "log"}},
            "append": {"messages": [{"message": "one " + "x" * 60}, {"message": {"n": 2}}]},
            "move_reader": {"reader": "r", "position": 0},
            command: payload,
        }
        for before, fields in steps.items():
            if client.ask(before, queue="log", **fields).code != "OK":
                break

    return scenario


def _draft(client: Client) -> None:
    """Parts of two drafts, one of which becomes ready, is set again and delivered."""
    key = client.ask("draft", queue="drafted", parts=["head", "tail"], name="first").data.get("messageKey")
    if not key:  # it comes again later, and is the last one
        return
    tail = client.ask("set", messageKey=key, part="tail", message="the tail")
    client.ask("draft", queue="drafted", parts=["only"], noPriority=True)
    client.server.checkpoint()
    client.ask("set", messageKey=key, part="head", message="the head " + "x" * 300)
    if tail.code == "OK":  # else it comes again later, and is the last one
        client.ask("set", messageKey=key, part="tail", message="another tail")
    lease = client.ask("consume_next", queue="drafted", consumerId="me").data.get("lease")
    if lease:
        client.settle(lease, "nack", requeue=True, reason="later")


def _set(client: Client) -> None:
    """Bodies that are replaced: one of before a checkpoint, twice, and a new one."""
    lease = _open_leases(client)[0]
    first = client.settle(lease, "set", message="another body " + "y" * 300)
    client.server.checkpoint()
    if first.code == "OK":  # else it comes again later, and is the last one
        client.settle(lease, "set", message="a third one")
    client.ask("publish", queue="set", message="old")
    new = client.ask("consume_next", queue="set", consumerId="me").data.get("lease")
    if new:
        client.settle(new, "set", message="new")
        client.settle(new, "nack", requeue=True, reason="later")


def _settle_batch(client: Client, command: str, **fields: Any) -> None:
    items = [{name: lease[name] for name in ("messageKey", "leaseId")} for lease in _open_leases(client)[:2]]
    client.ask(command, items=[item | fields for item in items])


def _ack_and_publish(client: Client) -> None:
    lease = _open_leases(client)[0]
    messages = [{"queue": "next", "message": "what follows"}]
    client.ask("ack_and_publish", messageKey=lease["messageKey"], leaseId=lease["leaseId"], messages=messages)


_SCHEDULE: Final = {"name": "daily", "queue": "scheduled", "cron": "0 0 1 1 *", "message": "of the year"}


def _delete_schedule(client: Client) -> None:
    if client.ask("set_schedule", **_SCHEDULE).code == "OK":  # else there is none
        client.ask("delete_schedule", name="daily")


def _everything(client: Client) -> None:
    """A little of everything, in several groups."""
    client.ask("set_policy", queue="q", policy={"retry": {"limit": 2, "initialDelaySec": 1}})
    _group(client)
    _settle(client, 0, "extend_lease", visibilityTimeoutSec=90)
    _settle(client, 0, "nack", requeue=True, reason="later")
    client.ask("consume_next", queue="q", consumerId="d" * 300)
    _settle(client, -1, "release")
    _reprocess(client)
    client.server.pass_ms(2000)
    client.turn()
    client.ask("consume_next", queue="q")
    _checkpoint(client)
    client.ask("pause", queue="other", operation="publish")


SCENARIOS: Final[dict[str, Scenario]] = {
    "publish": _asking("publish", queue="q", message="new " + "z" * 100, priority=1),
    "publish_delayed": _asking("publish", queue="fresh", message={"a": [1, 2]}, delayMs=1000, targetConsumerId="me"),
    "group": _group,
    "consume_next": _asking("consume_next", queue="q", consumerId="me"),
    "wait": _wait,
    "ack": _settling("ack"),
    "nack": _settling("nack", requeue=True, reason="later"),
    "nack_dead": _settling("nack", requeue=False, reason="never"),
    "release": _settling("release"),
    "extend_lease": _settling("extend_lease", visibilityTimeoutSec=90),
    "reprocess_dlq": _reprocess,
    "pause": _asking("pause", queue="q"),
    "resume": _asking("resume", queue="q"),
    "set_policy": _asking("set_policy", queue="q", policy={"retry": {"limit": 2}}),
    "set_policy_patterns": _asking("set_policy_patterns", patterns=[{"pattern": "q", "policy": {"ttlSec": 60}}]),
    "questions": _asking("list_dlq", queue="q"),
    "hold": _hold,
    "unhold": _unhold,
    "move": _asking("move", queue="q", to="elsewhere", limit=3),
    "purge": _asking("purge", queue="q", state="delayed"),
    "delete_queue": _delete_queue,
    "drain": _drain,
    "quarantine_dlq": _quarantine,
    "drop_dlq": _asking("drop_dlq", queue="q"),
    "gather": _gather,
    "activate": _activate,
    "abandon": _abandon,
    "headers": _headers,
    "create_queue": _asking("create_queue", queue="made", createWith={"kind": "log"}),
    "append": _in_log("read"),
    "move_reader": _in_log("list_readers"),
    "delete_reader": _in_log("delete_reader", reader="r"),
    "delete_log": _in_log("delete_queue", discard=True),
    "draft": _draft,
    "set": _set,
    "publish_batch": _asking("publish_batch", queue="q", messages=[{"message": "one"}, {"message": "two"}]),
    "ack_batch": lambda client: _settle_batch(client, "ack_batch"),
    "nack_batch": lambda client: _settle_batch(client, "nack_batch", requeue=True),
    "ack_and_publish": _ack_and_publish,
    "set_schedule": _asking("set_schedule", **_SCHEDULE),
    "delete_schedule": _delete_schedule,
    "import_state": _import,
    "expire": _expire,
    "checkpoint": _checkpoint,
    "restart": _restart,
    "crash": _crash,
    "recover": _crash,  # without the store, and with a torn group at the end of the journal
    "roll": _roll,
    "everything": _everything,
}


def run_scenario(client: Client, name: str) -> None:
    """Run a scenario, and the requests that follow every scenario."""
    SCENARIOS[name](client)
    client.ask("publish", queue="after", message="the last one")
    if name != "expire":  # all leases have ended
        _settle(client, 0, "ack")
    client.ask("consume_next", queue="other")
