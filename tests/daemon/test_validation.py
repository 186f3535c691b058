"""Bodies that their queue does not take: rules in the form of the C++ system, and JSON Schema."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom_common.errors import ConfigurationError
from postroom_daemon.config.config import load
from postroom_daemon.policy.schema import JsonSchema, Pattern
from postroom_daemon.policy.schema_cost import SchemaCost
from postroom_daemon.policy.schema_rules import MessageRules
from tests.conformance.bench import Bench

MakeBench = Callable[..., Bench]
RULES = {
    "name": "reading",
    "rules": [
        {"field": "deviceId", "type": "required"},
        {"field": "timestamp", "type": "type", "expectedType": "number"},
    ],
}
SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}, "n": {"type": "integer", "minimum": 0}},
}


def problems(body: Any, *rules: dict[str, Any]) -> list[str]:
    return MessageRules({"rules": list(rules)}).problems(body)


def rule(type_: str, **keys: Any) -> dict[str, Any]:
    return {"field": "x", "type": type_, **keys}


def text_of(sent: Any) -> str:
    assert sent.answer.error is not None
    return str(sent.answer.error.message)


# --- rules --------------------------------------------------------------------------------------------------------


def test_a_required_field_must_be_there_and_may_be_null() -> None:
    assert problems({}, rule("required")) == ["field 'x' is required"]
    assert problems({"x": None}, rule("required")) == []


@pytest.mark.parametrize(
    ("expected", "fits", "fails"),
    [
        ("string", "", 1),
        ("number", 1.5, True),
        ("boolean", False, 0),
        ("array", [], {}),
        ("object", {}, []),
        ("null", None, ""),
    ],
)
def test_a_field_has_its_type_or_is_absent(expected: str, fits: Any, fails: Any) -> None:
    typed = rule("type", expectedType=expected)
    assert problems({"x": fits}, typed) == problems({}, typed) == []
    assert problems({"x": fails}, typed) == [f"field 'x' must be of type '{expected}'"]


@pytest.mark.parametrize(
    ("one", "fits", "fails", "text"),
    [
        (rule("minLength", value=3), "가", "ab", "must be at least 3 characters"),  # bytes are counted
        (rule("maxLength", value=3), "abc", "가나", "must be at most 3 characters"),
        (rule("minValue", value=-40.5), -40.5, -41, "must be at least -40.5"),
        (rule("maxValue", value=125), 125, 125.1, "must be at most 125"),
        (rule("pattern", value="dev-[0-9]+"), "dev-12", "dev-12x", "does not match pattern 'dev-[0-9]+'"),
        (rule("enum", values=["C", "F"]), "F", "K", "must be one of: 'C', 'F'"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else None,
)
def test_rules_of_length_value_pattern_and_enum(one: dict[str, Any], fits: Any, fails: Any, text: str) -> None:
    assert problems({"x": fits}, one) == problems({}, one) == problems({"x": [1]}, one) == []
    assert problems({"x": fails}, one) == [f"field 'x' {text}"]
    assert problems({"x": fails}, one | {"errorMessage": "no!"}) == ["no!"]


def test_a_pattern_matches_the_whole_value_whatever_is_in_it() -> None:
    assert not problems({"x": "ab"}, rule("pattern", value="a|ab"))
    for value in ("ab\n", "xab", "abx", ""):
        assert problems({"x": value}, rule("pattern", value="a|ab"))


def test_a_custom_rule_passes_and_a_value_that_is_not_an_object_has_no_fields() -> None:
    assert problems({"x": 1}, rule("custom", validator="plausible")) == []
    assert problems([1], rule("required"), rule("type", expectedType="string")) == ["field 'x' is required"]


def test_a_dot_in_a_name_is_a_dot() -> None:
    required = {"field": "p.temp", "type": "required"}
    assert problems({"p": {"temp": 1}}, required)
    assert not problems({"p.temp": 1}, required)


@pytest.mark.parametrize("expression", ["(?=x)y", r"(a)\1", "(", "a)|(b", "[", "a{1000}{1000}"])
def test_an_invalid_pattern_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression that is supported"):
        Pattern(expression)


def test_no_pattern_takes_long() -> None:
    begun = time.process_time()
    text = "a" * 100_000 + "!"
    assert not Pattern("(a+)+").matches_whole(text)
    assert JsonSchema({"pattern": "^(a|aa)+$"}).problems(text)
    assert time.process_time() - begun < 5  # a backtracking matcher does not end within the age of the universe


# --- JSON Schema --------------------------------------------------------------------------------------------------


def test_every_fault_is_reported_with_its_place() -> None:
    found = JsonSchema(SCHEMA | {"required": ["id", "at"]}).problems({"id": "A", "n": -1})
    assert sorted(found) == [
        '"at" is a required property',
        '/id: "A" does not match "^[a-z]+$"',
        "/n: -1 is less than the minimum of 0",
    ]


def test_the_text_of_many_faults_is_bounded_and_they_are_counted() -> None:
    schema = JsonSchema({"items": {"type": "integer"}})
    assert len(schema.problems(["x"] * 50)) == 21
    assert schema.problems(["x"] * 50)[-1] == "30 more"
    assert len(schema.problems(["x" * 1000])[0]) == len("/0: ") + 300
    large = schema.problems(["x"] * 100_000)
    assert large == ['/0: "x" is not of type "integer"', "there may be further errors"]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "text"}, "/type"),
        ({"pattern": "(?!a)"}, "regex"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"$ref": "file:///etc/passwd"}, "disabled"),
        ({"$ref": "http://localhost/schema"}, "disabled"),
        ({"$ref": "other.json"}, "other.json"),
        ({"$schema": "http://localhost/own"}, "meta-schema"),
        ({"enum": ["x" * 70_000]}, "at most 65536 bytes"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_reason(
    schema: dict[str, Any], reason: str, bench: Bench, tmp_path: Path
) -> None:
    refused = bench.send("set_policy", queue="q", policy={"validation": {"schema": schema}})
    assert refused.code == "ERR_INVALID_REQUEST"
    assert "policy.validation.schema: " in text_of(refused) and reason in text_of(refused)
    assert len(text_of(refused)) < 1000
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"queues": [{"name": "q", "policy": {"validation": {"schema": schema}}}]}))
    with pytest.raises(ConfigurationError, match=r"queues\[0\].policy.validation.schema"):
        load(tmp_path, file, {}, {})


def doubling(keyword: str, times: int) -> dict[str, Any]:
    """A small schema that is a large one once its references are expanded."""
    places = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(times)}
    return {"$defs": places | {f"a{times}": {"type": "null"}}, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_references_multiply_is_refused_before_it_is_compiled(keyword: str) -> None:
    with pytest.raises(ValueError, match="use fewer references"):
        JsonSchema(doubling(keyword, 60))
    back = doubling(keyword, 60) | {"properties": {"more": {"$ref": "#"}}}
    with pytest.raises(ValueError, match="use fewer references"):
        JsonSchema(back)
    assert len(JsonSchema(doubling(keyword, 5)).problems(1)) > 0


_EITHER = {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]}
_TREE = {
    "$defs": {
        name: {
            "type": "object",
            "required": [name],
            "properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}},
        }
        for name in ("x", "y")
    },
    "oneOf": [{"type": "integer"}, {"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}],
}


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"x": 1, "a": leaf}
    return leaf


@pytest.mark.parametrize(
    ("schema", "fits", "fails"),
    [
        (_EITHER, ["a"] * 100_000, [*["a"] * 100_000, 1]),
        (_TREE, nested(50, 1), nested(50, "leaf")),
        ({"items": {"anyOf": [{"const": n} for n in range(200)]}}, [7] * 3000, [777] * 3000),
        ({"not": {"not": {"oneOf": [{"items": {"const": n}} for n in range(50)]}}}, [7] * 3000, [777] * 3000),
    ],
)
def test_if_a_body_has_very_many_faults_in_alternatives_the_error_says_only_that_it_does_not_match(
    schema: dict[str, Any], fits: Any, fails: Any
) -> None:
    """To tell them took minutes, and gigabytes."""
    ready = JsonSchema(schema)
    assert ready.problems(fits) == []
    assert ready.problems(fails) == [
        "does not match the schema; it has too many alternatives to say where in so large a body"
    ]


@pytest.mark.parametrize(
    ("schema", "body", "where"),
    [
        (_EITHER, ["a", 1], "anyOf"),
        ({"properties": {"n": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}, {"n": "x"}, "/n: "),
        (_TREE, nested(2, "leaf"), "oneOf"),
        (
            {"$defs": {"n": {"$anchor": "number", "type": "integer"}}, "anyOf": [{"items": {"$ref": "#number"}}]},
            ["x"],
            "anyOf",
        ),
    ],
)
def test_a_few_faults_in_alternatives_are_listed(schema: dict[str, Any], body: Any, where: str) -> None:
    (reported,) = JsonSchema(schema).problems(body)
    assert where in reported


@pytest.mark.parametrize(
    ("schema", "body", "looks"),
    [
        ({"properties": {"a": {"type": "null"}}, "additionalProperties": {}}, {"a": 1, "b": 2}, 4),
        ({"prefixItems": [{}, {}], "items": {}, "contains": {}}, [1, 2, 3], 9),
        ({"patternProperties": {"^a": {}}, "propertyNames": {}}, {"a": 1}, 3),
        ({"if": {}, "then": {}, "else": {}, "not": {}, "dependentSchemas": {"a": {}}}, 1, 6),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"allOf": [{}, True, {"$ref": "#/$defs/none"}]}}}, 1, 4),
        ({"items": [{}, {}], "$id": "urn:x", "not": {"$ref": "urn:x#/items/1"}}, [1], 4),
    ],
)
def test_schema_checks_are_counted_as_the_keywords_require(schema: dict[str, Any], body: Any, looks: int) -> None:
    work = SchemaCost(schema)
    assert work.exceeds(body, looks - 1) and not work.exceeds(body, looks)


def test_older_dialects_are_recognised_by_their_names() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}
    assert JsonSchema(draft_4).problems(1)
    assert JsonSchema({"minimum": 1}).problems(1) == []


def test_a_reference_inside_the_schema_leads_there() -> None:
    schema = JsonSchema({"$defs": {"name": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/name"}}})
    assert schema.problems({"a": 1}) and not schema.problems({"a": "b"})


# --- publishing ---------------------------------------------------------------------------------------------------


def with_rules(make_bench: MakeBench, tmp_path: Path, policy: dict[str, Any] | None = None) -> Bench:
    root = tmp_path / "root0"
    root.mkdir()
    queue = {"name": "q", "messageSchema": RULES, "policy": policy or {}}
    (root / "config.json").write_text(json.dumps({"queues": [queue]}))
    return make_bench().open()


def test_a_body_that_breaks_rules_is_refused_with_all_of_them(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = with_rules(make_bench, tmp_path)
    sent = bench.send("publish", queue="q", message='{"timestamp": "now"}')
    assert sent.code == "ERR_VALIDATION_FAILED"
    assert text_of(sent) == "field 'deviceId' is required; field 'timestamp' must be of type 'number'"
    assert bench.store.queue("q") is None
    bench.publish(message='{"deviceId": "d", "timestamp": 1}')
    bench.publish(message={"deviceId": "d"})
    bench.publish(queue="other", message="anything")


@pytest.mark.parametrize(
    "body", [{"message": "{"}, {"message": ""}, {"message": "AAEC", "encoding": "base64"}, {"message": "[" * 5000}]
)
def test_a_body_that_is_not_json_breaks_every_schema(body: dict[str, Any], bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"validation": {"schema": {"type": "object"}}})
    sent = bench.send("publish", queue="q", **body)
    assert sent.code == "ERR_VALIDATION_FAILED"
    assert text_of(sent).startswith("JSON parse error: ")


def test_both_kinds_of_schema_count(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = with_rules(make_bench, tmp_path)
    bench.do("set_policy", queue="q", policy={"validation": {"schema": SCHEMA}})
    reported = text_of(bench.send("publish", queue="q", message={}))
    assert reported == "field 'deviceId' is required; \"id\" is a required property"


def test_an_invalid_message_may_become_a_dead_letter(make_bench: MakeBench, tmp_path: Path) -> None:
    bench = with_rules(make_bench, tmp_path, {"validation": {"onFailure": "dead-letter"}})
    sent = bench.send("publish", queue="q", message="{}")
    assert (sent.data["state"], sent.data["reasonCode"]) == ("dead", "VALIDATION_ERROR")
    assert sent.data["reason"] == "field 'deviceId' is required"
    letter = bench.do("list_dlq", queue="q")["messages"][0]
    assert (letter["reasonCode"], letter["reason"]) == ("VALIDATION_ERROR", sent.data["reason"])
    bench.reopen()
    again = bench.again(sent)
    bench.run(again)
    assert again.data == sent.data


def test_a_changed_schema_applies_at_once(bench: Bench) -> None:
    bench.do("set_policy", queue="q", policy={"validation": {"schema": {"type": "string"}}})
    assert bench.send("publish", queue="q", message=1).code == "ERR_VALIDATION_FAILED"
    bench.do("set_policy", queue="q", policy={"validation": {"schema": {"type": "integer"}}})
    bench.publish(message=1)
    bench.reopen()
    assert bench.send("publish", queue="q", message='"text"').code == "ERR_VALIDATION_FAILED"
    bench.do("set_policy", queue="q", policy={"validation": {"schema": {}}})
    bench.publish(message='"text"')


def test_the_answer_is_bounded_whatever_the_rules_say(make_bench: MakeBench, tmp_path: Path) -> None:
    root = tmp_path / "root0"
    root.mkdir()
    rules = [{"field": f"f{number}", "type": "required", "errorMessage": "é" * 100} for number in range(100)]
    (root / "config.json").write_text(json.dumps({"queues": [{"name": "q", "messageSchema": {"rules": rules}}]}))
    reported = text_of(make_bench().open().send("publish", queue="q", message="{}"))
    assert len(reported) < 2100
    assert reported.endswith("; and 81 more")


def test_an_invalid_pattern_stops_the_start_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    one = {"field": "x", "type": "pattern", "value": "(?<=a)b"}
    file.write_text(json.dumps({"queues": [{"name": "q", "messageSchema": {"rules": [one]}}]}))
    with pytest.raises(ConfigurationError, match=r"messageSchema.rules\[0\].value: '\(\?<=a\)b' is not a regular"):
        load(tmp_path, file, {}, {})


def test_a_daemon_without_schemas_does_not_load_the_library() -> None:
    program = "import sys, postroom_daemon.service.loop; sys.exit('jsonschema_rs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
