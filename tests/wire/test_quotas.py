"""What one user may have: beyond it, requests are refused with advice, and other users are served."""

from __future__ import annotations

from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon, Fields
from tests.wire.users import ANNA, BERT, code, publish_as, put_as, send_as, who_published


def ask_as(daemon: Daemon, uid: int, command: str, **payload: object) -> Fields:
    """The whole answer to a request of a user."""
    return daemon.answer(send_as(daemon, uid, command, payload))


def refused(daemon: Daemon, limit: str) -> int:
    """How many requests were refused by a limit of users."""
    return int(daemon.ask("metrics")["quotaRefusals"][limit])


def test_requests_beyond_a_users_quota_are_refused(make_shared: MakeDaemon) -> None:
    limits = ("--limits-user-pending-requests", "100", "--limits-user-share-requests", "10")
    daemon = make_shared(*limits).start()
    daemon.freeze()
    many, few = publish_as(daemon, ANNA, 250), publish_as(daemon, BERT, 100)
    daemon.thaw()
    assert [code(daemon, one) for one in few] == ["OK"] * 100
    assert [code(daemon, one) for one in many] == ["OK"] * 100 + ["ERR_QUOTA_EXCEEDED"] * 150
    assert [request for uid, request in who_published(daemon) if uid == ANNA] == [one.request_id for one in many[:100]]
    assert refused(daemon, "pendingRequests") == 150


def test_pending_bytes_are_limited_too(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-pending-bytes", "4000").start()
    daemon.freeze()
    sent = publish_as(daemon, ANNA, 40)
    daemon.thaw()
    fit = 4000 // len(sent[0].data)
    assert [code(daemon, one) for one in sent].count("OK") in range(fit - 1, fit + 1)


def test_a_request_refused_by_the_quota_is_executed_when_it_is_sent_again(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-pending-requests", "5").start()
    daemon.freeze()
    sent = publish_as(daemon, ANNA, 30)
    daemon.thaw()
    refused = [one for one in sent if code(daemon, one) != "OK"]
    assert len(refused) == 25
    put_as(daemon, ANNA, refused[0])
    assert code(daemon, refused[0]) == "OK"
    assert refused[0].request_id in [request for _, request in who_published(daemon)]


def test_the_daemons_own_user_has_no_quota(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-pending-requests", "5", "--limits-user-share-requests", "3").start()
    daemon.freeze()
    sent = [daemon.send("publish", {"queue": "q"}) for _ in range(40)]
    daemon.thaw()
    assert [code(daemon, one) for one in sent] == ["OK"] * 40


def test_a_user_who_sends_too_fast_is_refused_with_the_time_of_a_retry(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-requests-per-sec", "1").start()
    daemon.freeze()
    many, few = publish_as(daemon, ANNA, 100), publish_as(daemon, BERT, 1)
    daemon.thaw()
    assert code(daemon, few[0]) == "OK"
    answers = [daemon.answer(one) for one in many]
    assert answers[0]["ok"]
    errors = [answer["error"] for answer in answers if not answer["ok"]]
    assert {error["code"] for error in errors} == {"ERR_QUOTA_EXCEEDED"}
    assert "limits.userRequestsPerSec): try again in " in errors[0]["message"]
    assert refused(daemon, "requestsPerSec") == len(errors) > 50


def test_a_user_with_too_many_long_polls_is_refused_another(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-waits", "2").start()
    wait = {"queue": "q", "waitMs": 60_000}
    waiting = [send_as(daemon, ANNA, "consume_next", wait) for _ in range(2)]
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 2, "both wait")
    answer = daemon.answer(send_as(daemon, ANNA, "consume_next", wait))
    assert answer["error"]["code"] == "ERR_QUOTA_EXCEEDED"
    assert "limits.userWaits" in answer["error"]["message"]
    other = send_as(daemon, BERT, "consume_next", wait)
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 3, "another user waits, too")
    for number in range(3):
        daemon.publish("q", str(number))
    assert [daemon.answer(one)["data"]["message"]["payload"] for one in (*waiting, other)] == ["0", "1", "2"]
    assert refused(daemon, "waits") == 1


@on_every_store
def test_a_user_with_too_many_leases_must_settle_some_first_even_after_a_crash(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-leases", "3").start()
    publish_as(daemon, BERT, 9)
    daemon.wait(lambda: daemon.counts("q").get("ready") == 9, "all are there")
    given = ask_as(daemon, ANNA, "consume_next", queue="q", max=9)["data"]["messages"]
    assert len(given) == 3
    daemon.kill()
    daemon.start()
    answer = ask_as(daemon, ANNA, "consume_next", queue="q")
    assert answer["error"]["code"] == "ERR_QUOTA_EXCEEDED"
    assert "settle some" in answer["error"]["message"]
    assert ask_as(daemon, BERT, "consume_next", queue="q")["data"]["message"]
    first = given[0]
    lease = {"messageKey": first["message"]["messageKey"], "leaseId": first["lease"]["leaseId"]}
    assert ask_as(daemon, ANNA, "ack", **lease)["ok"]
    assert ask_as(daemon, ANNA, "consume_next", queue="q")["data"]["message"]
    assert refused(daemon, "leases") == 1


def test_a_waiting_user_at_the_quota_of_leases_is_refused_when_a_message_arrives(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-leases", "1").start()
    daemon.publish("q", "first")
    assert ask_as(daemon, ANNA, "consume_next", queue="q")["data"]["message"]
    waiting = send_as(daemon, ANNA, "consume_next", {"queue": "q", "waitMs": 60_000})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "she waits")
    daemon.publish("q", "second")
    assert code(daemon, waiting) == "ERR_QUOTA_EXCEEDED"
    assert daemon.consume("q")["message"]["payload"] == "second"


def publish_one(daemon: Daemon, uid: int, queue: str = "q") -> Fields:
    return ask_as(daemon, uid, "publish", queue=queue, message="x" * 1000)


@on_every_store
def test_a_user_over_the_storage_quota_publishes_again_once_some_is_consumed_even_after_a_crash(
    make_shared: MakeDaemon,
) -> None:
    daemon = make_shared("--limits-user-stored-bytes", "5000").start()
    answers = [publish_one(daemon, ANNA, queue=f"q{number % 2}") for number in range(6)]
    assert [answer["ok"] for answer in answers] == [True] * 4 + [False] * 2
    assert answers[5]["error"]["code"] == "ERR_QUOTA_EXCEEDED"
    assert "publish again once some have been consumed" in answers[5]["error"]["message"]
    daemon.kill()
    daemon.start()
    daemon.wait(lambda: not publish_one(daemon, ANNA)["ok"], "what was stored before is counted")
    assert publish_one(daemon, BERT)["ok"]
    assert all(daemon.publish("q", "x" * 1000) for _ in range(6)), "the daemon's own user has no limit"
    daemon.settle("ack", daemon.consume("q0"))
    daemon.ask("move", queue="q1", to="elsewhere")
    daemon.settle("nack", daemon.consume("q0"), reason="kept as a dead letter")
    assert publish_one(daemon, ANNA)["ok"]
    assert not publish_one(daemon, ANNA)["ok"]
    daemon.ask("drop_dlq", queue="q0")
    daemon.ask("purge", queue="elsewhere")
    batch = {"messages": [{"queue": "q", "message": "x" * 1000} for _ in range(6)]}
    results = ask_as(daemon, ANNA, "publish_batch", **batch)["data"]["results"]
    assert ["error" not in result for result in results] == [True] * 3 + [False] * 3
    daemon.stop()
    assert daemon.tool("verify").returncode == 0
