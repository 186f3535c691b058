"""What must hold after every scenario, checked by the answers, the journal and the deliveries that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from postroom_common.events import Event
from postroom_daemon.engine.decide import QUERIES
from tests.conformance.bench import seen_in
from tests.crash.server import PATIENCE, Client, Sent
from tests.wire.audit import Ledger, audit

#: The error codes that each kind of fault may cause.
CODES = {
    "KILL": (),
    "POWER": (),
    "ENOSPC": ("ERR_STORAGE_FULL",),
    "EDQUOT": ("ERR_STORAGE_FULL",),
    "SHORT": ("ERR_STORAGE_FULL",),
    "EIO": ("ERR_STORAGE_FAILED",),
    "EROFS": ("ERR_STORAGE_FAILED",),
    "EMFILE": ("ERR_STORAGE_FAILED",),
}
_QUERIES = {str(command) for command in QUERIES}
#: The last event of each command.
_EVENTS = {
    "publish": "published", "draft": "published", "set": "part_set", "consume_next": "leased", "ack": "acked",
    "release": "released",
    "extend_lease": "lease_extended", "reprocess_dlq": "reprocessed", "pause": "paused", "resume": "resumed",
    "set_policy": "policy_set", "import_state": "imported", "hold": "held", "unhold": "unheld", "move": "moved",
    "set_policy_patterns": "policy_patterns_set", "activate": "activated", "abandon": "died",
    "purge": "dropped", "delete_queue": "queue_deleted", "drain": "drain_set", "quarantine_dlq": "quarantined",
    "drop_dlq": "dropped", "publish_batch": "published", "ack_batch": "acked", "nack_batch": "retried",
    "append": "appended", "create_queue": "queue_created", "move_reader": "reader_moved",
    "delete_reader": "reader_deleted",
    "ack_and_publish": "published", "set_schedule": "schedule_set", "delete_schedule": "schedule_deleted",
}  # fmt: skip
#: What it may be instead; that of the end of a drain whose beginning a fault has refused says that nothing changed.
_OTHER_EVENTS = {"set": "body_set", "publish": "part_appended", "publish_batch": "part_appended", "drain": "answered"}
#: The error for a receipt, by the event that ended its lease.
_LEASE_ENDS = {
    "acked": "ERR_MESSAGE_NOT_FOUND", "released": "ERR_LEASE_EXPIRED", "retried": "ERR_LEASE_EXPIRED",
    "died": "ERR_LEASE_EXPIRED",
}  # fmt: skip


def check_invariants(client: Client, kind: str) -> None:
    """Open the root without faults and check all invariants. ``kind`` is the fault that occurred. Raises
    ``AssertionError``."""
    server = client.server
    assert server.open(), f"it does not start: {server.problem}"
    _answer_all(client)
    bench = server.bench
    events = bench.events()
    for sent in client.sent:
        _check_answers(sent, {*CODES[kind], *_codes_of_overtaken(sent, events)}, events)
    ledger = audit(events, cut=kind == "POWER")
    _check_requests(client.sent, events)
    assert not any((client.ipc / "dead").iterdir()), "a request was set aside"
    _check_recovery_repeats(client)
    _check_deliveries(client, ledger)


def _answer_all(client: Client) -> None:
    client.take()
    for _ in range(PATIENCE):
        if not client.waiting():
            break
        client.turn()
    left = [name for name in client.waiting() if not _waits(client, name)]
    assert not left, f"never answered: {left}"
    for sent in client.sent:
        assert sent.answers or sent.payload.get("waitMs"), f"the request {sent.request_id} is gone, without an answer"


def _waits(client: Client, name: str) -> bool:
    return any(sent.payload.get("waitMs") and f"r{int(name[:6])}" == sent.request_id for sent in client.sent)


def _codes_of_overtaken(sent: Sent, events: list[Event]) -> Iterator[str]:
    """The error codes that are right if a later request about the same lease was executed first."""
    for event in events:
        if event["type"] in _LEASE_ENDS and event.get("by", {}).get("request") in sent.overtaken_by:
            assert event["lease"] == sent.payload["leaseId"]
            yield "ERR_LEASE_EXPIRED" if "keep" in event else _LEASE_ENDS[event["type"]]


def _check_answers(sent: Sent, codes: set[str], events: list[Event]) -> None:
    """A repeat gets the first answer, or an error that the delivery has ended. Other errors are among ``codes``."""
    refused = [answer["error"]["code"] for answer in sent.answers if not answer["ok"]]
    if _delivery_is_over(sent, events):
        refused = [code for code in refused if code != "ERR_LEASE_EXPIRED"]
    assert set(refused) <= codes, f"{sent.command} is answered {refused}: {sent.answers}"
    done = [answer for answer in sent.answers if answer["ok"]]
    if sent.command not in _QUERIES:
        assert not (done and refused), f"{sent.command} is answered OK and {refused}"
        assert len({str(_essence(answer)) for answer in done}) <= 1, f"{sent.command} got two answers: {done}"


def _delivery_is_over(sent: Sent, events: list[Event]) -> bool:
    """Whether the answer was a delivery that has ended since."""
    if sent.command not in ("consume_next", "activate") or not sent.data.get("message"):
        return False
    lease_id = sent.data["lease"]["leaseId"]
    return any(event["type"] in _LEASE_ENDS and event.get("lease") == lease_id for event in events)


def _essence(answer: dict[str, Any]) -> Any:
    data = answer["data"]
    return data.get("messageKey"), (data.get("lease") or {}).get("leaseId")


def _check_requests(sents: list[Sent], events: list[Event]) -> None:
    """A request that succeeded is in the journal once; one that failed is not."""
    by_request: dict[str, list[Event]] = {}
    for event in events:
        if "by" in event:
            by_request.setdefault(event["by"]["request"], []).append(event)
    for sent in sents:
        found = by_request.get(sent.request_id, [])
        expected = sent.command in _EVENTS or sent.command == "nack"
        if sent.command == "consume_next" and not sent.data.get("message"):
            expected = False
        wanted = int(sent.code == "OK" and expected)
        assert len(found) == wanted, f"{sent.command} answered {sent.code}: {len(found)} events in the journal"
        for event in found:
            types = (_OTHER_EVENTS.get(sent.command), _EVENTS.get(sent.command))
            assert sent.command == "nack" or event["type"] in types, event


def _check_recovery_repeats(client: Client) -> None:
    """A second recovery, and one without the store, lead to the same state."""
    bench = client.server.bench
    first = seen_in(bench)
    client.server.close()
    assert client.server.open()
    assert seen_in(bench) == first, "a second recovery leads to another state"
    client.server.close()
    bench.lose_store()
    assert client.server.open()
    assert seen_in(bench) == first, "the journal leads to another state than the store"


def _check_deliveries(client: Client, ledger: Ledger) -> None:
    """Exactly the messages that were published and not settled are delivered, byte for byte."""
    published = _published(client)
    for sent in client.sent:
        if sent.command == "import_state" and sent.data:
            published |= {one["key"]: one["message"]["parts"][0]["text"] for one in sent.payload["messages"]}
    states = {key: message.state for key, message in ledger.messages.items()}
    assert set(states) == set(published), "the journal has other messages than were answered"
    queues = {message.queue for message in ledger.messages.values()}
    dead = {key for queue in queues for key in _dead(client, queue)}
    assert dead == {key for key, state in states.items() if state == "dead"}
    for key in [key for key, state in states.items() if state == "held"]:
        assert client.ask("unhold", messageKey=key).code == "OK"
    client.server.pass_ms(4 * 3_600_000)
    client.turn()
    client.server.pass_ms(4 * 3_600_000)
    delivered: Counter[str] = Counter()
    for queue in sorted(queues):
        client.ask("resume", queue=queue)
        take = {"queue": queue, "consumerId": "me", "payloadAs": "value", "orderedSec": 0}
        while message := client.ask("consume_next", **take).data["message"]:
            delivered[message["messageKey"]] += 1
            bodies = sorted(part["payload"] for part in message.get("parts", ())) or message["payload"]
            assert bodies == published[message["messageKey"]], f"not what was published: {message}"
            lease = client.sent[-1].data["lease"]
            assert client.settle(lease, "ack").code == "OK"
    # A message dies at the end of its last lease.
    ended = Counter(key for queue in queues for key in _dead(client, queue) if states[key] == "inflight")
    alive = Counter(key for key, state in states.items() if state not in ("dead", "done", "gone", "drafting"))
    assert delivered + ended == alive, f"lost {alive - delivered - ended}, too many {delivered + ended - alive}"


def _published(client: Client) -> dict[str, Any]:
    """The body of each message whose publication was answered, by key; those of its parts in order, if it gathers."""
    published: dict[str, Any] = {}
    for result, body in _publications(client):
        if "gathering" in result:
            published[result["messageKey"]] = sorted([*published.get(result["messageKey"], ()), body])
        else:
            published[result["messageKey"]] = body
    return published | _set(client)


def _set(client: Client) -> dict[str, Any]:
    """The bodies of the parts of each draft in order, and of each message whose body was replaced, by key."""
    parts: dict[str, dict[str, Any]] = {}
    bodies: dict[str, Any] = {}
    for sent in client.sent:
        if sent.command == "draft" and sent.data:
            parts[sent.data["messageKey"]] = {}
        elif sent.command == "set" and sent.data and "part" in sent.payload:
            parts[sent.data["messageKey"]][sent.payload["part"]] = sent.payload["message"]
        elif sent.command == "set" and sent.data:
            bodies[sent.data["messageKey"]] = sent.payload["message"]
    return bodies | {key: sorted(values.values()) for key, values in parts.items()}


def _publications(client: Client) -> Iterator[tuple[dict[str, Any], Any]]:
    """The result and the body of each publication that was answered."""
    for sent in client.sent:
        if sent.command == "publish" and sent.data:
            yield sent.data, sent.payload["message"]
        elif sent.command in ("publish_batch", "ack_and_publish") and sent.data:
            for message, result in zip(sent.payload["messages"], sent.data["results"], strict=True):
                yield result, message["message"]


def _dead(client: Client, queue: str) -> list[str]:
    return [letter["messageKey"] for letter in client.ask("list_dlq", queue=queue).data["messages"]]
