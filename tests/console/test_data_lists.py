"""The contents of lists: filters of messages, bursts, pages, operator events."""

from __future__ import annotations

from typing import Any

import pytest

from postroom_console.data.actions import set_policy
from postroom_console.data.bursts import collapsed
from postroom_console.data.detail_pane import AdminEvents, detail_lines
from postroom_console.data.filters import FilterError
from postroom_console.data.message_filter import message_filter
from postroom_console.data.model import Model, Queue
from postroom_console.data.rows import WIDE, head, layout
from postroom_console.data.updates import Step
from postroom_console.data.views import dead_columns, queues_words
from postroom_console.tui.headline import Part, fitted, summary_of
from postroom_console.tui.paged_view import Pages
from tests.console.lines import event, request


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("pump two", {"text": "pump two"}),
        ("reason:rejected", {"reasonCode": "REJECTED"}),
        ('why:"not found" 3', {"reasonText": "not found", "text": "3"}),
        ("older:90s younger:1.5h", {"olderThanMs": 90_000, "youngerThanMs": 5_400_000}),
        ("c:worker-1 tries:3 prio:5", {"consumerId": "worker-1", "attemptAtLeast": 3, "priority": 5}),
        ("attr:n=1 attr:zone=north", {"attribute": {"n": 1, "zone": "north"}}),
        ('path:$.a[?@.b=="c"]', {"jsonPath": '$.a[?@.b=="c"]'}),
        ("key:line-1 corr:7", {"orderingKey": "line-1", "correlationId": "7"}),
        ("http://x", {"text": "http://x"}),
    ],
)
def test_words_are_the_daemon_s_filter(text: str, wanted: dict[str, Any]) -> None:
    assert message_filter(text) == wanted


def test_a_time_is_in_the_technician_s_time_zone() -> None:
    assert message_filter("from:2026-11-28T10:00+00:00")["from"] == 1_795_860_000_000


@pytest.mark.parametrize("text", ["older:soon", "tries:x", "from:noon", "attr:x", "reason:", 'why:"open', "prio:"])
def test_a_filter_that_cannot_be_parsed_raises_an_error(text: str) -> None:
    with pytest.raises(FilterError):
        message_filter(text)


def test_many_similar_lines_of_a_second_are_one_line_that_shows_the_last() -> None:
    pairs = [(number, event(number, queue="alarms", wallMs=1000 + number)) for number in range(1, 31)]
    pairs.insert(10, (99, event(99, "died", queue="alarms", wallMs=1011)))
    (burst, death) = collapsed(pairs)
    assert (burst.number, burst.times, burst.record.number) == (1, 30, 30)
    assert (death.number, death.times) == (99, 1)
    assert [one.number for one in collapsed(pairs, opened={1})] == [number for number, _ in pairs]


def test_few_similar_lines_and_those_of_other_queues_clients_and_seconds_stay_separate() -> None:
    few = [(number, event(number, queue="alarms", wallMs=1000)) for number in range(5)]
    others = [(number, event(number, queue=f"q{number}", wallMs=1000)) for number in range(10, 20)]
    seconds = [(number, event(number, queue="alarms", wallMs=number * 1000)) for number in range(20, 30)]
    clients = [(number, request(client=f"c{number}", wallMs=1000)) for number in range(40, 50)]
    pairs = [*few, *others, *seconds, *clients]
    assert [one.number for one in collapsed(pairs)] == [number for number, _ in pairs]


def test_the_last_lines_are_the_end_of_all_lines() -> None:
    pairs = [(number, event(number, queue=f"q{number % 3}", wallMs=number // 7 * 1000)) for number in range(1, 100)]
    assert collapsed(pairs, least=3, rows=5) == collapsed(pairs, least=3)[-5:]


def test_pages_lead_on_and_back() -> None:
    pages = Pages()
    first = {"messages": [{}] * 200, "next": "b"}
    assert pages.range_text(first) == "1-200 m more" and not pages.previous()
    assert pages.next(first) and pages.after == "b"
    last = {"messages": [{}] * 50, "next": ""}
    assert pages.range_text(last) == "201-250" and not pages.next(last)
    assert pages.previous() and pages.after == ""
    assert pages.range_text({"messages": [{}]}) == ""


def test_an_answer_that_is_older_than_the_page_is_ignored() -> None:
    pages = Pages()
    first = {"messages": [{}], "next": "b"}
    assert pages.next(first)
    assert not pages.next(first)


def test_the_user_who_paused_a_queue_is_shown_until_it_is_resumed() -> None:
    notable = AdminEvents()
    notable.add([event(1, "paused", queue="a", by={"client": "tech1"}), event(2, "published", queue="a")])
    pause = notable.pause_of("a")
    assert pause and pause.client == "tech1"
    notable.add([event(3, "resumed", queue="a")])
    assert notable.pause_of("a") is None and [record.number for record in notable.of("a")] == [3, 1]


def test_pauses_are_remembered_for_a_bounded_number_of_queues() -> None:
    notable = AdminEvents()
    notable.add(event(number, "held", queue=f"q{number}") for number in range(1, 700))
    assert notable.of("q1") == [] and len(notable.of("q699")) == 1
    notable.add(event(number, "held", queue="q699") for number in range(1, 100))
    assert len(notable.of("q699")) < 20


def test_a_pause_that_the_tail_no_longer_has_is_shown_as_such() -> None:
    lines = detail_lines(Queue("a", consume_paused=True), {}, AdminEvents(), [], 0, 0, 38)
    assert "PAUSED: consuming" in lines and "  since before the start of the tail" in lines


def test_a_policy_is_restored_completely_including_new_keys() -> None:
    plan = set_policy("a", {"retry": {"limit": 9}}, {"ttlSec": 60})
    assert plan.undo and [step.payload["policy"] for step in plan.undo.steps if isinstance(step, Step)] == [
        {},
        {"ttlSec": 60},
    ]


def test_the_line_at_the_top_leaves_out_what_matters_least() -> None:
    parts = [Part(0, "site-a RUN"), Part(9, "disk 2GB free"), Part(2, "dead 9!"), Part(5, "")]
    assert fitted(parts, 80) == " site-a RUN | disk 2GB free | dead 9!"
    assert fitted(parts, 22) == " site-a RUN | dead 9!"
    assert fitted(parts, 12) == " site-a RUN"
    assert fitted(parts, 6) == " site~"


def test_the_line_at_the_top_has_the_role_of_a_node_and_refusals_say_where_the_leader_is() -> None:
    model = Model()
    follows = {"ok": True, "leads": 0, "name": "plant", "leader": "b", "address": "b:9980", "epoch": 3, "pending": 12}
    where = "read-only: this node follows; the leader is b (b:9980)"
    for number, (check, words, refusal) in enumerate(
        (
            ({**follows, "leads": 1, "leader": "a"}, "LEADS epoch 3", ""),
            (follows, "FOLLOWS b epoch 3 lag 12", where),
            ({**follows, "ok": False, "error": "seed this node"}, "WAITS epoch 3 lag 12!", where),
            ({**follows, "leader": ""}, "WAITS epoch 3 lag 12", "read-only: no node of the cluster leads at present"),
        )
    ):
        model.take("health", {"checks": {"cluster": check}}, number)
        assert Part(2, words) == summary_of(model, None)[0]
        assert model.member and model.member.refusal() == refusal
    model.take("health", {"checks": {"cluster": {**follows, "epoch": "many"}}}, 9)
    assert "malformed" in model.problem
    model.take("health", {"checks": {"disk": {}}}, 10)
    assert model.member is None


def test_the_number_of_queues_not_shown_is_given() -> None:
    model = Model()
    reported = {"queue": "alarms", "ready": 0, "inflight": 0, "delayed": 0, "dlq": 0}
    model.take("queues", {"queues": [reported], "next": ""}, 1)
    assert queues_words(model) == "1 queue"
    model.take("queues", {"queues": [reported], "next": "alarms"}, 2)
    assert queues_words(model) == "more than 1 queues"
    assert Part(2, queues_words(model)) in summary_of(model, None)


def test_in_a_list_wider_than_the_screen_columns_have_space_for_long_values() -> None:
    columns = dead_columns()
    narrow, wide = layout(columns, 80), layout(columns, WIDE)
    assert len(wide) == len(columns) and len(head(columns, wide)) == WIDE
    assert wide[0].cells > narrow[0].cells and wide[4].cells >= len("MESSAGE_EXPIRED")
