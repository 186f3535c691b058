"""The filter of the tail: each word of its table, and invalid input."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom_console.data.filters import Filter, FilterError
from postroom_console.data.records import Record
from tests.console.lines import event, published, request

PUMP = published({"device": "Pump-7", "tags": ["a", {"n": 1}], "note": None, "펌프": "수리"}, queue="line.pumps")
TEXT = published("two words here", 2, queue="my queue", key="msg:my queue:01a2-beef")
DIED = event(3, "died", queue="line.mix", consumer="worker-1", failure={"reasonMessage": "Überlauf \x1b[2J"})
REFUSED = request("publish", "ERR_PAUSED", queue="line.mix", client="press-4", request="request-77")
ASKED = request("list_queues", queue="")
ALL = (PUMP, TEXT, DIED, REFUSED, ASKED)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", ALL),
        ("   ", ALL),
        ("PUMP-7", [PUMP]),
        ("수리", [PUMP]),
        ('"two words"', [TEXT]),
        ("überlauf", [DIED]),
        (r"\x1b[2j", [DIED]),
        ("q:line.mix", [DIED, REFUSED]),
        ("q:line.*", [PUMP, DIED, REFUSED]),
        ("q:line.mi?", [DIED, REFUSED]),
        ("q:line", []),
        ('q:"my queue"', [TEXT]),
        ("c:press-4", [REFUSED]),
        ("c:worker-*", [DIED]),
        ("cmd:publish", [REFUSED]),
        ("cmd:published", []),
        ("ev:died", [DIED]),
        ("ev:publish", []),
        ("ev:p*", [PUMP, TEXT]),
        ("err:ERR_PAUSED", [REFUSED]),
        ("err:paused", [REFUSED]),
        ("err:*", [REFUSED]),
        ("err:ERR_OTHER", []),
        ("id:beef", [TEXT]),
        ("id:request-77", [REFUSED]),
        (".device=Pump-7", [PUMP]),
        (".device=Pump", []),
        (".device", [PUMP]),
        (".note", [PUMP]),
        (".note=null", [PUMP]),
        (".tags[0]=a", [PUMP]),
        (".tags[1].n=1", [PUMP]),
        (".tags[7]", []),
        (".tags.n", []),
        ('."펌프"=수리', [PUMP]),
        ("~Pump-[0-9]", [PUMP]),
        ("~^.{0,10}id.:3,", [DIED]),
        ("!q:line.*", [TEXT, ASKED]),
        ("!!q:line.mix", [DIED, REFUSED]),
        ('!q:"my queue" !cmd:*', [PUMP, DIED]),
        ("q:line.* !err:* !ev:died", [PUMP]),
        ("...", []),
    ],
)
def test_a_filter_selects_these_records(text: str, meant: list[Record]) -> None:
    means = Filter(text)
    assert [record for record in ALL if means(record)] == list(meant)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('q:"my queue', "a quote"),
        ("!", "! must precede a word"),
        ("q:", "q: needs a value"),
        ('q:""', "q: needs a value"),
        (".a.b[x]", "a path must"),
        ("~(", "invalid regular expression"),
        ("~" + "(" * 2000, "invalid regular expression"),
        ("~a{99999999999999999999}", "invalid regular expression"),
    ],
)
def test_a_filter_that_cannot_be_read_says_why(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=re.escape(reason)):
        Filter(text)


def test_a_thousand_exclamation_marks_are_an_even_number_of_them() -> None:
    assert Filter("!" * 10_000 + "q:line.mix")(DIED)


def test_half_a_surrogate_pair_matches_no_line() -> None:
    assert not Filter("\ud83d")(PUMP)


def test_a_dubious_regular_expression_gives_no_warning() -> None:
    assert not Filter("~[[a]q")(ASKED)


words = st.sampled_from(["q:", "c:", "cmd:", "ev:", "err:", "id:", "~", "!", ".", "[0]", "=", '"', " ", "*", "a", "가"])


@given(st.lists(words | st.text(max_size=4), max_size=8).map("".join))
def test_whatever_is_typed_is_a_filter_or_is_refused_with_a_reason(text: str) -> None:
    try:
        means = Filter(text)
    except FilterError as error:
        assert str(error)
    else:
        assert all(means(record) in (True, False) for record in ALL)


bodies: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=6,
)


@given(bodies)
def test_every_value_of_a_body_matches_by_its_path(body: Any) -> None:
    record = published(body if isinstance(body, dict | list) else {"a": body})
    found = list(_leaves(body if isinstance(body, dict | list) else {"a": body}, ""))
    assert all(Filter(f"{path}={value}")(record) for path, value in found)


def _leaves(value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in _leaves(inner, f"{path}.{name}")]
    if isinstance(value, list):
        return [leaf for number, inner in enumerate(value) for leaf in _leaves(inner, f"{path}[{number}]")]
    return [(path, value if isinstance(value, str) else json.dumps(value))] if path else []


def test_a_regular_expression_that_would_never_end_is_given_up_and_reported() -> None:
    means = Filter("~(a+)+$")
    record = published("a" * 60 + "b")
    assert not means.problem
    while not means.problem:
        assert not means(record)
    assert "takes too long" in means.problem
    assert not means(published("aaa"))


def test_a_body_that_is_nested_too_deeply_to_compare_does_not_match() -> None:
    deep = published("[" * 900 + "]" * 900)
    assert not Filter("[0]=1")(deep)
    assert Filter("[0][0]")(deep)
    assert not Filter(".a=1")(published("[" * 100_000))
