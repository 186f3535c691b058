"""Principals that are no local user: what they may do, and how events record them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroom_common.events import Event
from postroom_daemon.broker.idempotency import request_key
from postroom_daemon.model.principal import Account, Principal, name_of
from tests.conformance.bench import Bench, Sent

SCANNER = "token:scanner-7"


def by(bench: Bench, account: Account, command: str, **payload: Any) -> Sent:
    sent = bench.make(command, **payload)
    sent.request.who = Principal("scanner", account)
    sent.request.key = request_key(account, sent.request.wire.request_id.encode())
    bench.run(sent)
    return sent


def last(bench: Bench, type_: str) -> Event:
    return [event for event in bench.events() if event["type"] == type_][-1]


def test_a_principal_without_a_uid_is_recorded_by_its_name_and_owns_its_lease(bench: Bench) -> None:
    key = by(bench, SCANNER, "publish", queue="q", message="x").data["messageKey"]
    published = last(bench, "published")
    assert published["by"]["principal"] == SCANNER and "uid" not in published["by"]
    by(bench, SCANNER, "consume_next", queue="q", consumerId="c")
    assert last(bench, "leased")["principal"] == SCANNER
    assert by(bench, "token:other", "ack", messageKey=key, consumerId="c").code == "ERR_LEASE_MISMATCH"
    assert by(bench, SCANNER, "ack", messageKey=key, consumerId="c").code == "OK"


def test_the_owner_of_a_lease_is_remembered_over_a_restart(bench: Bench) -> None:
    by(bench, SCANNER, "publish", queue="q", message="x")
    by(bench, SCANNER, "consume_next", queue="q", consumerId="c")
    bench.reopen(without_store=True)
    (row,) = bench.do("list_inflight")["messages"]
    assert row["principal"] == SCANNER and "uid" not in row


def test_no_remote_principal_is_a_master_not_even_one_called_root(bench: Bench) -> None:
    for account in ("0", "uid:0", SCANNER):
        assert by(bench, account, "read_state").code == "ERR_FORBIDDEN"
    assert bench.send("read_state").code == "OK"


def test_quotas_apply_to_each_account_separately(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(**{"limits.userLeases": "1"}).open()
    for _ in range(3):
        bench.publish()
    assert by(bench, SCANNER, "consume_next", queue="q").code == "OK"
    refused = by(bench, SCANNER, "consume_next", queue="q")
    assert refused.code == "ERR_QUOTA_EXCEEDED"
    assert refused.answer.error and refused.answer.error.message.startswith(f"{SCANNER} has 1 messages leased")
    assert by(bench, "token:other", "consume_next", queue="q").code == "OK"


def test_the_same_bytes_from_two_accounts_are_two_requests(bench: Bench) -> None:
    assert len({request_key(account, b"bytes") for account in (7, "token:7", "node:7", SCANNER)}) == 4


def test_a_request_without_an_idempotency_key_is_executed_each_time(bench: Bench) -> None:
    sent = [bench.make("publish", queue="q", message="x") for _ in range(2)]
    sent[1].request.wire = sent[0].request.wire
    for one in sent:
        one.request.key = None
        bench.run(one)
    assert sent[0].data["messageKey"] != sent[1].data["messageKey"]
    assert "digest" not in last(bench, "published")["by"]


def test_error_texts_name_an_account_as_people_do() -> None:
    assert (name_of(1000), name_of(SCANNER)) == ("uid 1000", SCANNER)
