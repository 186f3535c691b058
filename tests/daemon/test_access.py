"""Who may do what: the commands by what they need, the rules, users and groups, client ids."""

from __future__ import annotations

import os
import pwd
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_common.protocol import Command
from postroom_daemon.config.access_file import read_access
from postroom_daemon.platform.accounts import Accounts
from postroom_daemon.policy.access import Access
from postroom_daemon.policy.access_rules import Verb
from tests.conformance.bench import Bench, Sent
from tests.daemon.access_rules import ALICE, BOB, FORBIDDEN, Fields, allow, as_user, for_user, use

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "permissions.md"
MINE: Final = "mine"
LOG: Final = "mine, a log"
ALL: Final = [verb.value for verb in Verb]


def needs_of_commands() -> dict[Command, str]:
    """What each command needs, as the document says."""
    rows = re.findall(r"^\| \*\*(.+?)\*\*.*? \| (.+?) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    found = [(Command(name), need) for need, cell in rows for name in re.findall(r"`([a-z_]+)`", cell)]
    assert len(found) == len(dict(found)), "a command has two rows"
    return dict(found)


NEEDS: Final = needs_of_commands()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench("memory").open()


class Prepared:
    """A queue of Alice's with a message in each state, and a payload for each command about it."""

    def __init__(self, bench: Bench) -> None:
        keys = [bench.publish(MINE, number) for number in range(4)]
        bench.publish(MINE, "delayed", delayMs=1000)
        dead = as_user(bench, ALICE, "consume_next", queue=MINE).data
        as_user(bench, ALICE, "nack", messageKey=dead["message"]["messageKey"], leaseId=dead["lease"]["leaseId"])
        held = as_user(bench, ALICE, "consume_next", queue=MINE).data
        bench.do("hold", messageKey=keys[2])
        bench.do("set_schedule", name="each morning", queue=MINE, cron="0 5 * * *")
        bench.do("append", queue=LOG, message="x", createWith={})
        bench.do("move_reader", queue=LOG, reader="one", position=0)
        one: Fields = {"messageKey": held["message"]["messageKey"], "leaseId": held["lease"]["leaseId"]}
        message: Fields = {"queue": MINE, "message": "x"}
        letter = {"messageKey": dead["message"]["messageKey"]}
        draft = as_user(bench, ALICE, "draft", queue=MINE, parts=["a"]).data["messageKey"]
        self.payloads: dict[Command, Fields] = {
            Command.PUBLISH: message,
            Command.PUBLISH_BATCH: {"messages": [message]},
            Command.DRAFT: {"queue": MINE, "parts": ["a"]},
            Command.SET: {"messageKey": draft, "part": "a", "message": "x"},
            Command.APPEND: {"queue": LOG, "message": "x"},
            Command.READ: {"queue": LOG},
            Command.MOVE_READER: {"queue": LOG, "reader": "r", "position": 0},
            Command.DELETE_READER: {"queue": LOG, "reader": "one"},
            Command.LIST_READERS: {"queue": LOG},
            Command.CREATE_QUEUE: {"queue": "mine, new"},
            Command.CONSUME_NEXT: {"queue": MINE},
            Command.ACK: one,
            Command.ACK_BATCH: {"items": [one]},
            Command.ACK_AND_PUBLISH: {**one, "messages": [message]},
            Command.NACK: one,
            Command.NACK_BATCH: {"items": [one]},
            Command.RELEASE: one,
            Command.EXTEND_LEASE: one,
            Command.ACTIVATE: one,
            Command.ABANDON: {"messageKey": keys[3]},
            Command.HEALTH: {},
            Command.METRICS: {},
            Command.LIST_QUEUES: {},
            Command.LIST_CONSUMERS: {"queue": MINE},
            Command.LIST_INFLIGHT: {"queue": MINE},
            Command.GET_MESSAGE: {"messageKey": keys[3]},
            Command.LIST_DLQ: {"queue": f"{MINE}.dlq"},
            Command.COUNT_DLQ: {"queue": f"{MINE}.dlq"},
            Command.REPROCESS_DLQ: letter,
            Command.DROP_DLQ: letter,
            Command.QUARANTINE_DLQ: letter,
            Command.HOLD: {"messageKey": keys[3]},
            Command.UNHOLD: {"messageKey": keys[2]},
            Command.MOVE: {"queue": MINE, "to": "mine too"},
            Command.PURGE: {"queue": MINE},
            Command.DELETE_QUEUE: {"queue": MINE},
            Command.SET_POLICY: {"queue": MINE, "policy": {"ttlSec": 5}},
            Command.DRAIN: {},
            Command.SET_POLICY_PATTERNS: {"patterns": []},
            Command.GET_POLICY_PATTERNS: {},
            Command.SET_SCHEDULE: {"name": "each morning", "queue": MINE, "cron": "0 6 * * *"},
            Command.DELETE_SCHEDULE: {"name": "each morning"},
            Command.LIST_SCHEDULES: {},
            Command.READ_STATE: {},
            Command.IMPORT_STATE: {"engineMs": 0, "wallMs": 0},
        }
        for command in (
            Command.STATUS,
            Command.BROWSE,
            Command.PAUSE,
            Command.RESUME,
            Command.GET_POLICY,
            Command.QUEUE_STATISTICS,
        ):
            self.payloads[command] = {"queue": MINE}


def is_refused(sent: Sent) -> bool:
    """Whether a user got nothing of what he asked for: refused, one by one, or not shown."""
    if sent.code == FORBIDDEN:
        return True
    data = sent.data_or_none() or {}
    if "results" in data:
        return all(one.get("error", {}).get("code") == FORBIDDEN for one in data["results"])
    if sent.request.command in (Command.LIST_QUEUES, Command.LIST_SCHEDULES):
        return not data["count"]
    return False


def test_the_document_lists_the_permission_of_every_command() -> None:
    assert NEEDS.keys() == set(Command)


@pytest.mark.parametrize("granted", [None, *Verb], ids=str)
@pytest.mark.parametrize("command", Command)
def test_a_command_needs_what_the_document_says(bench: Bench, command: Command, granted: Verb | None) -> None:
    payload = Prepared(bench).payloads[command]
    verbs = [granted.value] if granted else []
    use(bench, allow(*([for_user(ALICE, *verbs, pattern="mine.*")] if verbs else []), default=()))
    may = {
        "everyone": True,
        "any verb": granted is not None,
        "operators": False,
        "daemon": False,
        "consume and publish": False,
    }.get(NEEDS[command], NEEDS[command] == granted)
    sent = as_user(bench, ALICE, command, **payload)
    assert is_refused(sent) is not may, sent.answer
    if not may:
        assert sent.code in (FORBIDDEN, "OK")


@pytest.mark.parametrize("command", Command)
def test_operators_may_do_everything_except_commands_for_tools(bench: Bench, command: Command) -> None:
    payload = Prepared(bench).payloads[command]
    use(bench, allow({"who": ["everyone"], "deny": ALL}, operators=[f"user {ALICE}"]))
    sent = as_user(bench, ALICE, command, **payload)
    assert is_refused(sent) is (NEEDS[command] == "daemon"), sent.answer


@pytest.mark.parametrize("command", [one for one in Command if one is not Command.IMPORT_STATE])
def test_no_rule_restricts_root_or_the_daemons_own_user(bench: Bench, command: Command) -> None:
    payload = Prepared(bench).payloads[command]
    use(bench, allow({"who": ["everyone"], "deny": ALL}))
    for uid in {0, os.geteuid()}:
        assert as_user(bench, uid, command, **payload).code != FORBIDDEN


@pytest.mark.parametrize("command", Command)
def test_without_rules_everyone_may_do_everything_but_operate(bench: Bench, command: Command) -> None:
    payload = Prepared(bench).payloads[command]
    refused = NEEDS[command] in ("operate", "operators", "daemon")
    assert is_refused(as_user(bench, ALICE, command, **payload)) is refused


def test_a_refusal_names_user_permission_queue_and_remedy_and_changes_nothing(bench: Bench) -> None:
    use(bench, allow(default=("browse",)))
    error = as_user(bench, ALICE, "publish", queue="line.a").answer.error
    way_out = "ask the device's owner for a rule (access.rules) that allows it"
    assert str(error) == f"uid {ALICE} may not publish to queue 'line.a': {way_out}"
    assert "published" not in bench.event_types()
    assert as_user(bench, ALICE, "status", queue="line.a").data["exists"] is False


def test_the_first_rule_about_user_queue_and_permission_counts(bench: Bench) -> None:
    everyone = {"who": ["everyone"]}
    tree = allow(
        for_user(ALICE, "publish", queue="pay"),
        {**everyone, "deny": ["publish", "consume"], "pattern": "pay.*"},
        {**everyone, "allow": ["publish"]},
        default=("browse",),
    )
    access = Access(read_access(tree, "file"), daemon_uid=1)
    reported = {uid: access.rulings(uid, "pay") for uid in (ALICE, BOB)}
    assert reported[ALICE][Verb.PUBLISH] == (True, "rule", 0)
    assert reported[BOB][Verb.PUBLISH] == (False, "rule", 1)
    assert reported[ALICE][Verb.CONSUME] == (False, "rule", 1)
    assert access.rulings(BOB, "other")[Verb.PUBLISH] == (True, "rule", 2)
    assert access.rulings(BOB, "other")[Verb.CONSUME] == (False, "default", -1)
    assert access.rulings(BOB, "other")[Verb.BROWSE] == (True, "default", -1)
    assert access.rulings(0, "pay")[Verb.OPERATE] == (True, "operator", -1)


def test_a_pattern_must_match_the_whole_name(bench: Bench) -> None:
    use(bench, allow(for_user(ALICE, "publish", pattern="line\\.[a-z]+|press")))
    codes = [as_user(bench, ALICE, "publish", queue=name).code for name in ("line.a", "press", "line.a/", "xpress")]
    assert codes == ["OK", "OK", FORBIDDEN, FORBIDDEN]


def test_cached_decisions_are_discarded_when_the_rules_change(bench: Bench) -> None:
    use(bench, allow(for_user(ALICE, "publish")))
    assert as_user(bench, ALICE, "publish", queue="q").code == "OK"
    use(bench, allow(for_user(BOB, "publish")))
    assert [as_user(bench, uid, "publish", queue="q").code for uid in (ALICE, BOB)] == [FORBIDDEN, "OK"]


VERBS = st.lists(st.sampled_from(ALL), unique=True, max_size=3)
ENTRIES = st.builds(
    lambda who, queue, verbs, word: {"who": who, word: verbs} | ({"queue": queue} if queue else {}),
    st.lists(st.sampled_from([f"user {ALICE}", f"user {BOB}", "everyone"]), min_size=1, max_size=2),
    st.sampled_from(["", "a", "b"]),
    VERBS.filter(bool),
    st.sampled_from(["allow", "deny"]),
)


@given(
    st.lists(ENTRIES, max_size=6),
    VERBS,
    st.lists(st.tuples(*map(st.sampled_from, ((ALICE, BOB), ALL, "abc"))), max_size=9),
)
def test_of_any_rules_the_first_match_counts(
    entries: list[Fields], default: list[str], questions: list[tuple[int, str, str]]
) -> None:
    access = Access(read_access(allow(*entries, default=tuple(default)), "file"), daemon_uid=1)

    def by_hand(uid: int, verb: str, queue: str) -> bool:
        for entry in entries:
            if {f"user {uid}", "everyone"} & set(entry["who"]) and entry.get("queue", queue) == queue:
                for word in ("allow", "deny"):
                    if verb in entry.get(word, []):
                        return word == "allow"
        return verb in default

    for uid, verb, queue in questions:
        assert access.may(uid, Verb(verb), queue) is by_hand(uid, verb, queue)
        assert access.may(uid, None, queue) is any(by_hand(uid, one, queue) for one in ALL)
        assert access.is_open(Verb(verb)) <= by_hand(uid, verb, queue)


def test_permissions_can_be_checked_for_any_number_of_queues(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom_daemon.policy.access.CACHE_LIMIT", 10)
    access = Access(read_access(allow(for_user(ALICE, "publish", queue="q7")), "file"), daemon_uid=1)
    assert [n for n in range(100) if access.may(ALICE, Verb.PUBLISH, f"q{n}")] == [7]
    assert [n for n in range(100) if access.may(ALICE, Verb.PUBLISH, f"q{n}")] == [7]


# --- client ids -----------------------------------------------------------------------------------------------


def test_a_registered_client_id_is_for_its_user_and_for_masters(bench: Bench) -> None:
    use(bench, {"clients": {"press-7": str(ALICE), "nobody-s": "no.such.user"}})
    codes = {}
    for client in ("press-7", "nobody-s", "any"):
        for uid in (ALICE, BOB, 0):
            sent = bench.make("publish", client=client, uid=uid, queue="a")
            bench.run(sent)
            codes[client, uid] = sent.code
    refused = {("press-7", BOB), ("nobody-s", ALICE), ("nobody-s", BOB)}
    assert {one for one, code in codes.items() if code == FORBIDDEN} == refused


def test_a_waiting_client_gets_nothing_if_its_id_is_registered_for_another_user_meanwhile(bench: Bench) -> None:
    waiting = as_user(bench, ALICE, "consume_next", queue="a", waitMs=60_000)
    use(bench, {"clients": {f"client-{ALICE}": str(BOB)}})
    bench.publish("a")
    assert waiting.code == FORBIDDEN
    assert bench.do("status", queue="a")["metrics"]["ready"] == 1


# --- users and groups -----------------------------------------------------------------------------------------


def test_a_user_without_an_entry_matches_only_by_number_and_everyone() -> None:
    tree = allow(for_user(ALICE, "publish"), {"who": ["group root", "user root"], "allow": ["consume"]},
                 {"who": ["everyone"], "allow": ["browse"]})  # fmt: skip
    access = Access(read_access(tree, "file"), daemon_uid=1)
    assert [verb for verb, reported in access.rulings(ALICE, "q").items() if reported.allowed] == ["publish", "browse"]
    assert [verb for verb, reported in access.rulings(2**32 - 2, "q").items() if reported.allowed] == ["browse"]


def test_a_denial_to_a_group_applies_to_a_user_whose_groups_are_unknown() -> None:
    both = {"who": ["group root"], "allow": ["consume"], "deny": ["publish"]}
    tree = allow(for_user(BOB, "publish"), both, default=("publish", "browse"))
    access = Access(read_access(tree, "file"), daemon_uid=54000)
    for uid, reported in {ALICE: ["browse"], BOB: ["publish", "browse"], 1: ["publish", "browse"]}.items():
        assert [verb for verb, ruling in access.rulings(uid, "q").items() if ruling.allowed] == reported


def test_a_user_removed_from_the_device_is_still_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = allow({"who": ["user daemon"], "deny": ["publish"]}, default=("publish",))
    access = Access(read_access(tree, "file"), daemon_uid=54000)
    assert not access.may(1, Verb.PUBLISH, "q")
    monkeypatch.setattr(pwd, "getpwnam", _nobody)
    monkeypatch.setattr(pwd, "getpwuid", _nobody)
    access.refresh(10**9)
    assert not access.may(1, Verb.PUBLISH, "q")


def test_a_user_directory_that_does_not_answer_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, find = threading.Event(), pwd.getpwuid

    def slow(uid: int) -> pwd.struct_passwd:
        answered.wait()
        return find(uid)

    tree = allow({"who": ["group daemon"], "allow": ["publish"]})
    access = Access(read_access(tree, "file"), daemon_uid=54000)
    assert access.is_ready_for(0)
    with monkeypatch.context() as patched:
        patched.setattr(pwd, "getpwuid", slow)
        assert [access.is_ready_for(uid) for uid in (1, *range(2000, 2100))] == [False] * 101
        answered.set()
        while not access.is_ready_for(1):
            pass
    assert access.may(1, Verb.PUBLISH, "q")


def test_the_groups_of_a_user_are_those_that_the_system_reports() -> None:
    for entry in pwd.getpwall():
        reported = Accounts().groups_of(entry.pw_uid)
        known = pwd.getpwuid(entry.pw_uid)
        assert reported == frozenset(os.getgrouplist(known.pw_name, known.pw_gid))


def test_without_a_rule_about_groups_no_user_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access(read_access(allow(for_user(ALICE, "publish"), operators=["user root"]), "file"), daemon_uid=54000)
    monkeypatch.setattr(pwd, "getpwuid", None)
    assert access.is_ready_for(ALICE)
    assert access.may(ALICE, Verb.PUBLISH, "q")


def _nobody(asked: object) -> None:
    raise KeyError(asked)


def test_names_and_numbers_mean_the_same_user_and_group() -> None:
    for who in ("user daemon", "user 1", "group daemon", "group 1"):
        access = Access(read_access(allow({"who": [who], "allow": ["publish"]}), "file"), daemon_uid=54000)
        assert access.may(1, Verb.PUBLISH, "q")
        assert not access.may(2, Verb.PUBLISH, "q")
