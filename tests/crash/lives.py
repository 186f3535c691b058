"""The short lives in which faults are put: each verb and each thing that the daemon does by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.crash.office import Fields, Office

Life = Callable[[Office], None]

#: Size at which a segment is full in the life that is about that.
ROLL_BYTES: Final = 6000


def prepare(office: Office) -> None:
    """What is there before: messages in every state. The first three requests that consume hold leases afterwards."""
    for number in range(7):
        office.ask("publish", queue="q", message=f"body {number} " + "x" * 60)
    office.ask("publish", queue="q", message="later", delayMs=3_600_000)
    office.ask("publish", queue="other", message="alone")
    for _ in range(3):
        office.ask("consume_next", queue="q", consumerId="holder")
    doomed = office.ask("consume_next", queue="q").data["lease"]
    office.settle(doomed, "nack", requeue=False, reason="never")
    done = office.ask("consume_next", queue="q").data["lease"]
    office.settle(done, "ack")
    assert all(sent.code == "OK" for sent in office.sent)


def _held(office: Office) -> list[Fields]:
    """The leases that were given and that nobody has tried to end."""
    ended = {
        item["leaseId"]
        for sent in office.sent
        if sent.command.startswith(("ack", "nack", "release"))
        for item in sent.payload.get("items", [sent.payload])
    }
    leases = [sent.data["lease"] for sent in office.sent if sent.data.get("message")]
    return [lease for lease in leases if lease["leaseId"] not in ended]


def _settle(office: Office, which: int, command: str, **fields: Any) -> None:
    """ack, nack, release or extend_lease of one of them; nothing where a fault has kept them from being given."""
    for lease in _held(office)[which:][:1]:
        office.settle(lease, command, **fields)


def _settling(command: str, **fields: Any) -> Life:
    return lambda office: _settle(office, 0, command, **fields)


def _asking(command: str, **payload: Any) -> Life:
    return lambda office: void(office.ask(command, **payload))


def void(_: object) -> None:
    """Lives have no result."""


def _group(office: Office) -> None:
    """Several requests share a group, some of which a full disk must not keep from being done."""
    lease = _held(office)[0]
    office.put("publish", queue="q", message="first of the group", priority=2)
    office.put("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    office.put("publish", queue="new", message="y" * 5000)
    office.put("status", queue="q")
    office.turn()


def _reprocess(office: Office) -> None:
    dead = next(sent for sent in office.sent if sent.command == "nack")
    office.ask("reprocess_dlq", messageKey=dead.payload["messageKey"])


def _expire(office: Office) -> None:
    office.server.pass_ms(60_000)
    office.turn()


def _wait(office: Office) -> None:
    """A client waits, and is served by another's publish."""
    office.ask("consume_next", queue="waited", waitMs=60_000)
    office.ask("publish", queue="waited", message="for who waits")


def _checkpoint(office: Office) -> None:
    office.ask("publish", queue="q", message="before the checkpoint")
    office.server.checkpoint()
    _settle(office, 0, "ack")
    office.server.checkpoint()


def _restart(office: Office) -> None:
    office.server.stop()
    office.turn()


def _crash(office: Office) -> None:
    office.server.close()
    office.turn()


def _roll(office: Office) -> None:
    for number in range(4):
        office.ask("publish", queue="q", message=f"{number}" * 2000)


def _import(office: Office) -> None:
    """Messages of another root, in three states."""
    message = {"queue": "came", "createdMs": 1_795_811_000_000, "createdEngineMs": 5, "published": 7}
    texts = {"ready": "came ready", "delayed": "came early", "dead": "came dead"}
    messages = [
        message | {"key": f"msg:came:{state}", "state": state, "message": {"parts": [{"text": text}]}}
        for state, text in texts.items()
    ]
    messages[1]["dueEngineMs"] = 20_000
    messages[2]["deadEngineMs"] = 9_000
    office.ask("import_state", engineMs=10_000, wallMs=1_795_811_100_000, messages=messages)


def _key(office: Office, which: int) -> str:
    """A message that was published before the life began."""
    published = [sent for sent in office.sent if sent.command == "publish"]
    return str(published[which].data["messageKey"])


def _hold(office: Office) -> None:
    office.ask("hold", messageKey=_key(office, 6), reason="a look")


def _unhold(office: Office) -> None:
    _hold(office)
    office.ask("unhold", messageKey=_key(office, 6))


def _drain(office: Office) -> None:
    office.ask("drain", draining=True)
    office.ask("drain", draining=False)


def _quarantine(office: Office) -> None:
    dead = next(sent for sent in office.sent if sent.command == "nack")
    office.ask("quarantine_dlq", messageKey=dead.payload["messageKey"], reason="a look")


def _delete_queue(office: Office) -> None:
    """A queue whose only message has gone away."""
    office.ask("move", messageKey=_key(office, 8), to="q")
    office.ask("delete_queue", queue="other")


def _settle_batch(office: Office, command: str, **fields: Any) -> None:
    items = [{name: lease[name] for name in ("messageKey", "leaseId")} for lease in _held(office)[:2]]
    office.ask(command, items=[item | fields for item in items])


def _ack_and_publish(office: Office) -> None:
    lease = _held(office)[0]
    messages = [{"queue": "next", "message": "what follows"}]
    office.ask("ack_and_publish", messageKey=lease["messageKey"], leaseId=lease["leaseId"], messages=messages)


_SCHEDULE: Final = {"name": "daily", "queue": "scheduled", "cron": "0 0 1 1 *", "message": "of the year"}


def _delete_schedule(office: Office) -> None:
    office.ask("set_schedule", **_SCHEDULE)
    office.ask("delete_schedule", name="daily")


def _everything(office: Office) -> None:
    """A little of all, in several groups."""
    office.ask("set_policy", queue="q", policy={"retry": {"limit": 2, "initialDelaySec": 1}})
    _group(office)
    _settle(office, 0, "extend_lease", visibilityTimeoutSec=90)
    _settle(office, 0, "nack", requeue=True, reason="later")
    office.ask("consume_next", queue="q", consumerId="d" * 300)
    _settle(office, -1, "release")
    _reprocess(office)
    office.server.pass_ms(2000)
    office.turn()
    office.ask("consume_next", queue="q")
    _checkpoint(office)
    office.ask("pause", queue="other", operation="publish")


LIVES: Final[dict[str, Life]] = {
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
    "questions": _asking("list_dlq", queue="q"),
    "hold": _hold,
    "unhold": _unhold,
    "move": _asking("move", queue="q", to="elsewhere", limit=3),
    "purge": _asking("purge", queue="q", state="delayed"),
    "delete_queue": _delete_queue,
    "drain": _drain,
    "quarantine_dlq": _quarantine,
    "drop_dlq": _asking("drop_dlq", queue="q"),
    "publish_batch": _asking("publish_batch", queue="q", messages=[{"message": "one"}, {"message": "two"}]),
    "ack_batch": lambda office: _settle_batch(office, "ack_batch"),
    "nack_batch": lambda office: _settle_batch(office, "nack_batch", requeue=True),
    "ack_and_publish": _ack_and_publish,
    "set_schedule": _asking("set_schedule", **_SCHEDULE),
    "delete_schedule": _delete_schedule,
    "import_state": _import,
    "expire": _expire,
    "checkpoint": _checkpoint,
    "restart": _restart,
    "crash": _crash,
    "recover": _crash,  # with a store that is lost, and a torn group at the journal's end
    "roll": _roll,
    "everything": _everything,
}


def live(office: Office, name: str) -> None:
    """One life, and what follows in any."""
    LIVES[name](office)
    office.ask("publish", queue="after", message="the last one")
    if name != "expire":  # all leases are over then
        _settle(office, 0, "ack")
    office.ask("consume_next", queue="other")
