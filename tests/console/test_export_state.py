"""The state in a snapshot is that of one event, however busy the daemon is."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from postroom_console.export.folds import ReaderFold
from postroom_console.export.lines import of_leased
from postroom_console.export.queue_fold import QueueFold
from tests.console.exports import Snapshot, busy, export
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, wait_until
from tests.wire.test_gateway_users import ME, SCANNER, Gateway

EXPORTS = 4
TOTALS = ("published", "leased", "acked", "released", "retried", "died", "dropped", "reprocessed", "held", "moved")


class Book:
    """The journal read as a bookkeeper would: each message with its state, nothing of the product's own folding."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self.totals: dict[str, Counter[str]] = defaultdict(Counter)
        self.paused: dict[str, dict[str, bool]] = {}
        self.policies: dict[str, Any] = {}
        self.queues: set[str] = set()
        self.given: Counter[tuple[str, str]] = Counter()
        self.event = 0

    def read(self, daemon: Daemon, last: int) -> None:
        for event in daemon.events():
            if self.event < event["id"] <= last:
                self._enter(event)
                self.event = event["id"]

    def _enter(self, event: dict[str, Any]) -> None:
        kind, queue, key = event["type"], event.get("queue", ""), event.get("key", "")
        if kind in TOTALS and not event.get("ofDead"):
            self.totals[queue][kind] += 1
        if kind == "queue_created":
            self.queues.add(queue)
        elif kind == "queue_deleted":
            self.queues.discard(queue)
            for book in (self.totals, self.paused, self.policies):
                book.pop(queue, None)
        elif kind in ("paused", "resumed"):
            self.paused[queue] = event["paused"]
        elif kind == "policy_set":
            self.policies[queue] = event["policy"]
        elif kind == "published":
            self.messages[key] = {"queue": queue, "state": "ready", "due": event.get("dueEngineMs", 0)}
        elif kind in ("acked", "dropped"):
            del self.messages[key]
        elif key:
            self._change(event, kind, self.messages[key])

    def _change(self, event: dict[str, Any], kind: str, message: dict[str, Any]) -> None:
        names = {"retried": "delayed", "died": "dead", "reprocessed": "ready", "held": "held", "unheld": "ready"}
        if kind in names:
            message |= {"state": names[kind], "due": event.get("dueEngineMs", 0), "lease": None}
        if kind == "died":
            failure = event["failure"]
            message |= {"reason": failure["reasonCode"], "apart": False, "diedMs": event["wallMs"]}
            message["who"] = failure["consumerId"]
        elif kind == "leased":
            message["lease"] = (event["consumer"], event["untilEngineMs"], event["attempt"], event["engineMs"])
            message["state"] = message["state"] if event.get("ofDead") else "inflight"
            self.given[message["queue"], event["consumer"]] += not event.get("ofDead")
        elif kind == "lease_extended":
            who, _, attempt, since = message["lease"]
            message["lease"] = (who, event["untilEngineMs"], attempt, since)
        elif kind == "released":
            message |= {"state": event.get("state", "ready"), "lease": None}
        elif kind == "quarantined":
            message["apart"] = bool(event["phase"])
        message["queue"] = event.get("to", message["queue"])

    def state_of(self, message: dict[str, Any], now: int) -> str:
        if message["state"] in ("ready", "delayed"):
            return "delayed" if message["due"] > now else "ready"
        return str(message["state"])

    def counts(self, now: int) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {queue: Counter() for queue in self.queues}
        for message in self.messages.values():
            counts[message["queue"]][self.state_of(message, now)] += 1
        return counts


def compare(snapshot: Snapshot, book: Book, has_one_page: bool) -> None:
    header = snapshot.header
    counts = book.counts(header["engineMs"])
    rows = {line["queue"]: line for line in snapshot.of("queue")}
    assert set(rows) == set(counts)
    for queue, row in rows.items():
        reported = {state: row[state] for state in ("ready", "delayed", "held", "inflight", "dead")}
        true = {state: counts[queue][state] for state in reported}
        if not has_one_page:  # which of those that wait were due is not known of all
            for one in (reported, true):
                one["ready"] += one.pop("delayed") + one.pop("held")
        assert reported == true, (queue, header["asOfEvent"])
        totals = {name: count for name, count in row["totals"].items() if name in TOTALS}
        assert totals == dict(book.totals[queue]), queue
        paused = book.paused.get(queue, {"publish": False, "consume": False})
        assert (row["publishPaused"], row["consumePaused"]) == (paused["publish"], paused["consume"])
        if queue in book.policies and "policy" in row:
            assert row["policy"] == book.policies[queue]
    leases = {
        line["message"]: (line["consumer"], line["untilEngineMs"], line["attempt"], line["leasedEngineMs"])
        for line in snapshot.of("lease")
    }
    assert leases == {key: one["lease"] for key, one in book.messages.items() if one.get("lease")}
    compare_letters(snapshot, book)
    held = Counter((one["queue"], one["lease"][0]) for one in book.messages.values() if one["state"] == "inflight")
    told_held = {(one["queue"], one["consumer"]): one["inflight"] for one in snapshot.of("consumer") if one["inflight"]}
    assert told_held == dict(held)
    given = {(one["queue"], one["consumer"]): one["delivered"] for one in snapshot.of("consumer")}
    assert {who: count for who, count in given.items() if count} == {w: c for w, c in book.given.items() if c}


def compare_letters(snapshot: Snapshot, book: Book) -> None:
    letters = snapshot.of("dead")
    reported = {
        one["message"]: (one["queue"], one["reasonCode"], one["diedMs"], one.get("consumer", ""))
        + (one.get("quarantined", False), one.get("leased", False))
        for one in letters
    }
    assert len(reported) == len(letters), "a letter is told twice"
    assert reported == {
        key: (one["queue"], one["reason"], one["diedMs"], one["who"], one["apart"], bool(one.get("lease")))
        for key, one in book.messages.items()
        if one["state"] == "dead"
    }
    without = [one for one in letters if "payloadBytes" not in one]
    assert len(without) <= len(letters) // 4, "bodies of letters that were there are told"
    assert {one["payloadShape"] for one in letters if "payloadBytes" in one} <= {'{"n":"number"}'}


def test_the_state_of_a_busy_daemon_is_that_of_one_event(daemon: Daemon, tmp_path: Path) -> None:
    book = Book()
    with busy(daemon) as answered:
        wait_until(lambda: answered() > 200, "there is something to tell")
        for number in range(EXPORTS):
            snapshot = export(daemon.root, tmp_path / "out", page=1000 if number % 2 else 3)
            book.read(daemon, snapshot.header["asOfEvent"])
            assert snapshot.header["consistent"]
            compare(snapshot, book, has_one_page=number % 2 == 1)


def test_a_log_is_a_line_of_a_queue_with_its_records_and_its_readers(daemon: Daemon, tmp_path: Path) -> None:
    messages = [{"message": f"record {number}"} for number in range(3)]
    appended = daemon.ask("append", queue="log", messages=messages, createWith={})
    daemon.publish("queue", "x")
    daemon.ask("move_reader", queue="log", reader="slow", position=appended["first"])
    daemon.ask("move_reader", queue="log", reader="quick", position=appended["last"])
    log, queue = export(daemon.root, tmp_path / "out").of("queue")
    shown = daemon.ask("status", queue="log")["log"]
    assert [log[name] for name in OF_LOG] == [3, shown["bytes"], appended["first"], appended["last"]]
    assert log["readers"] == {"slow": appended["first"], "quick": appended["last"]}
    assert log["lag"] == {"slow": appended["last"] - appended["first"], "quick": 0}
    assert log["totals"] == {"appended": 3} and not {*OF_LOG, "readers", "lag"} & {*queue}


OF_LOG = ("records", "recordBytes", "firstPosition", "lastPosition")


def test_a_log_that_changes_while_queues_are_listed_is_brought_to_the_last_page() -> None:
    counts = dict.fromkeys(("ready", "inflight", "delayed", "dlq"), 0)
    log = {"first": 3, "last": 5, "records": 2, "bytes": 100}
    queues, readers = QueueFold(lambda key, event: False), ReaderFold()
    queues.put_page({"asOfEvent": 9, "engineNowMs": 1, "next": "a", "queues": [{"queue": "a", **counts, "log": log}]})
    queues.put_page({"asOfEvent": 20, "engineNowMs": 1, "queues": []})
    readers.put("a", {"asOfEvent": 12, "readers": [{"reader": "r", "position": 4}, {"reader": "s", "position": 5}]})
    events: list[dict[str, Any]] = [
        {"id": 9, "type": "appended", "queue": "a", "record": "AAAA"},  # its page has it
        {"id": 10, "type": "appended", "queue": "a", "record": "AAAAAAA="},
        {"id": 11, "type": "trimmed", "queue": "a", "before": 5, "records": 1, "bytes": 40},
        {"id": 12, "type": "reader_moved", "queue": "a", "reader": "r", "position": 3},  # its answer has it
        {"id": 13, "type": "reader_moved", "queue": "a", "reader": "t", "position": 10},
        {"id": 14, "type": "reader_deleted", "queue": "a", "reader": "s"},
        {"id": 15, "type": "queue_created", "queue": "A", "kind": "log"},
    ]
    for event in events:
        queues.take(event)
        readers.take(event)
    made, changed = queues.rows()
    assert [changed[name] for name in OF_LOG] == [2, 100 + 32 + 5 - 40, 5, 10]
    assert readers.of(changed) == {"readers": {"r": 4, "t": 10}, "lag": {"r": 6, "t": 0}}
    assert [made[name] for name in OF_LOG] == [0, 0, 0, 0] and readers.of(made) == {"readers": {}, "lag": {}}


def test_leases_and_requests_name_the_principal_of_a_gateway_and_requests_its_door(
    make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    daemon = make_daemon(config={"gateway": {"users": ME}}).start()
    with Gateway(daemon, "lmq-http") as gateway:
        gateway.of(SCANNER, "publish", {"queue": "q", "message": "x"})
        gateway.of(SCANNER, "consume_next", {"queue": "q"})
    daemon.publish("q", "y")
    snapshot = export(daemon.root, tmp_path / "out")
    (lease,), (leased,) = snapshot.of("lease"), daemon.events("leased")
    for line in (lease, of_leased(leased)):
        assert line["principal"] == SCANNER and line.get("uid") is None
    requests = [line for line in snapshot.of("traffic") if line["command"] in ("publish", "consume_next")]
    assert [(line.get("principal"), line.get("door")) for line in requests] == [
        (SCANNER, "lmq-http"),
        (SCANNER, "lmq-http"),
        (None, None),
    ]
    assert "uid" in requests[2] and "uid" not in requests[0]
