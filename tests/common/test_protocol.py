"""Names and limits of the protocol."""

from __future__ import annotations

import pytest

from postroom_common.protocol import (
    ALIASES,
    FIELDS,
    Command,
    ErrorCode,
    Kind,
    is_id,
    queue_name_problem,
    resolve_command,
)


@pytest.mark.parametrize(
    "text", ["a", "A1", "9", "a.b_c-d", "x" * 128, "dev:1", "a@b", "a b", "센서1", "-a", "%2e", "a\\b", "é" * 64, "😀"]
)
def test_ids_that_are_safe_as_file_names_are_accepted(text):
    assert is_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        ".a",
        "a/b",
        "/",
        "a\n",
        "x" * 129,
        "é" * 65,
        "a\0",
        "a\x85",
        "a\u2028b",
        "\u202e",
        "\ud800",
        None,
        7,
        b"a",
    ],
)
def test_other_ids_are_refused(text):
    assert not is_id(text)


@pytest.mark.parametrize("name", ["a", "..", "a/b", "Größe", "x" * 256, "é" * 128, "a:b", " "])
def test_a_queue_name_may_be_any_text_without_control_characters(name):
    assert queue_name_problem(name) is None


@pytest.mark.parametrize("name", ["", "x" * 257, "é" * 129, "a\nb", "\0", "\x7f", "\x9b"])
def test_other_names_are_refused_with_the_rule_that_they_break(name):
    assert "must" in str(queue_name_problem(name))


@pytest.mark.parametrize("name", [*Command, *ALIASES])
def test_a_command_is_recognised_in_any_case(name):
    meant = resolve_command(name)
    assert meant is not None
    assert resolve_command(name.upper()) is resolve_command(name.title()) is meant


def test_no_alias_hides_a_command():
    assert not set(ALIASES) & set(Command)
    assert resolve_command("publish_everything") is None


def test_every_command_has_its_fields_and_every_field_its_help():
    assert set(FIELDS) == set(Command)
    for fields in FIELDS.values():
        assert len({field.name for field in fields}) == len(fields)
        assert all(field.help for field in fields)


def test_a_default_lies_within_its_fields_own_bounds():
    for field in (field for fields in FIELDS.values() for field in fields):
        if field.default is not None and field.low is not None:
            assert field.kind in (Kind.INTEGER, Kind.NUMBER)
            assert field.low <= field.default <= field.high


def test_every_error_code_says_what_it_means_and_what_to_do():
    for code in ErrorCode:
        assert code.startswith("ERR_")
        assert code.meaning.endswith(".")
        assert code.advice.endswith(".")
