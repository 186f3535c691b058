"""What one user may have: beyond it, requests are refused with a text that says what to do, and the others go on."""

from __future__ import annotations

from tests.wire.conftest import MakeDaemon
from tests.wire.users import ANNA, BERT, code, publish_as, put_as, who_published


def test_who_has_more_waiting_than_one_may_is_told_so_for_what_is_beyond(make_shared: MakeDaemon) -> None:
    limits = ("--limits-user-pending-requests", "100", "--limits-user-share-requests", "10")
    daemon = make_shared(*limits).start()
    daemon.freeze()
    many, few = publish_as(daemon, ANNA, 250), publish_as(daemon, BERT, 100)
    daemon.thaw()
    assert [code(daemon, one) for one in few] == ["OK"] * 100
    assert [code(daemon, one) for one in many] == ["OK"] * 100 + ["ERR_QUOTA_EXCEEDED"] * 150
    assert [request for uid, request in who_published(daemon) if uid == ANNA] == [one.request_id for one in many[:100]]


def test_bytes_that_wait_are_limited_as_well(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-pending-bytes", "4000").start()
    daemon.freeze()
    sent = publish_as(daemon, ANNA, 40)
    daemon.thaw()
    fit = 4000 // len(sent[0].data)
    assert [code(daemon, one) for one in sent].count("OK") in range(fit - 1, fit + 1)


def test_what_was_too_much_is_executed_when_it_is_sent_again(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-pending-requests", "5").start()
    daemon.freeze()
    sent = publish_as(daemon, ANNA, 30)
    daemon.thaw()
    refused = [one for one in sent if code(daemon, one) != "OK"]
    assert len(refused) == 25
    put_as(daemon, ANNA, refused[0])
    assert code(daemon, refused[0]) == "OK"
    assert refused[0].request_id in [request for _, request in who_published(daemon)]


def test_the_daemons_own_user_may_have_any_number(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--limits-user-pending-requests", "5", "--limits-user-share-requests", "3").start()
    daemon.freeze()
    sent = [daemon.send("publish", {"queue": "q"}) for _ in range(40)]
    daemon.thaw()
    assert [code(daemon, one) for one in sent] == ["OK"] * 40
