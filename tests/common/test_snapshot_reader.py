"""The reader of snapshots: whole ones are taken, in bundles too, and each fault has its reason."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable

import pytest

from postroom_common.snapshot import FIELDS, FORMAT_MAJOR, Kind, Type, upgrade
from postroom_common.snapshot_reader import Member, Reason, check, read_lines
from tests.common.snapshots import golden, judged, lines_of, packed, sealed, text_of

MAJORS = (1, 2)
JSON_TYPES: dict[Type, tuple[type, ...]] = {
    Type.INTEGER: (int,),
    Type.NUMBER: (int, float),
    Type.STRING: (str,),
    Type.BOOLEAN: (bool,),
    Type.COUNTS: (dict,),
    Type.JSON: (dict, list, str, int, float, bool, type(None)),
}


def reasons(members: list[Member]) -> list[Reason | None]:
    return [member.reason for member in members]


@pytest.mark.parametrize("major", MAJORS)
def test_a_golden_snapshot_of_each_version_is_complete(major: int) -> None:
    (member,) = judged(packed(golden(major)))
    assert (member.reason, member.detail) == (None, "")
    assert member.header["major"] == major
    assert member.lines == member.trailer["lines"] == len(lines_of(golden(major))) - 1
    assert (member.device, len(member.snapshot)) == (member.header["device"], 32)


@pytest.mark.parametrize("major", MAJORS)
def test_golden_lines_have_the_fields_of_today(major: int) -> None:
    """Those of version 1 once they are upgraded."""
    kinds = set()
    for line in read_lines(io.BytesIO(packed(golden(major)))):
        kind = Kind(line["kind"])
        kinds.add(kind)
        fields = {field.name: field for field in FIELDS[kind]}
        reported = set(line) - {"device", "snapshot", "kind"}
        assert reported <= set(fields), (kind, reported - set(fields))
        missing = {name for name, field in fields.items() if field.required} - reported
        assert missing <= ({"lineCrc"} if major == 1 else set()), (kind, missing)
        assert [name for name in reported if type(line[name]) not in JSON_TYPES[fields[name].type]] == []
    assert kinds == set(Kind) - {Kind.BUNDLE} - ({Kind.CONSUMER} if major == 1 else set())


def test_a_line_of_version_1_is_read_under_the_names_of_today() -> None:
    old = {line["kind"]: line for line in lines_of(golden(1))}
    dead, lease, queue = upgrade(old["dead"]), upgrade(old["lease"]), upgrade(old["queue"])
    assert (dead["reasonCode"], dead["payloadBytes"]) == ("REJECTED", 11)
    assert dead["payloadDigest"] == old["dead"]["digest"]
    assert lease["untilEngineMs"] == old["lease"]["deadlineEngineMs"]
    assert (queue["publishPaused"], queue["consumePaused"]) == (False, True)
    assert upgrade(old["traffic"])["requestBytes"] == 214
    assert {line["request"] for line in map(upgrade, lines_of(golden(1))) if line["kind"] == "traffic"} == {
        "r-1",
        "r-9",
    }


def test_upgrading_a_line_of_today_changes_nothing() -> None:
    for line in lines_of(golden(2)):
        assert upgrade(line) is line
    for line in lines_of(golden(1)):
        assert upgrade(upgrade(line)) == upgrade(line)


def test_each_of_several_concatenated_snapshots_is_checked() -> None:
    bundle = {"device": "", "snapshot": "", "kind": "bundle", "members": ["a", "b"]}
    data = packed(golden(1)) + packed(golden(2)) + packed(text_of([bundle]))
    assert reasons(judged(data)) == [None, None]


def test_one_bad_snapshot_of_a_bundle_does_not_spoil_the_next() -> None:
    text = golden(2)
    bad = text.replace(b'"press":', b'"pross":') if b'"press":' in text else text.replace(b"REJECTED", b"DETECTER")
    assert reasons(judged(packed(bad) + packed(golden(1)))) == [Reason.CHECKSUM_DIFFERS, None]


def _header(**changes: object) -> Callable[[], bytes]:
    def made() -> bytes:
        header, *rest = lines_of(golden(2))[:-1]
        return packed(sealed([{**header, **changes}, *rest]))

    return made


def _lines(change: Callable[[list[dict[str, object]]], list[dict[str, object]]]) -> Callable[[], bytes]:
    return lambda: packed(text_of(change(lines_of(golden(2)))))


FAULTS: dict[str, tuple[Reason, Callable[[], bytes]]] = {
    "text that was never packed": (Reason.NOT_GZIP, lambda: golden(2)),
    "packed prose": (Reason.NOT_JSON, lambda: packed(b"Dear Sir,\nplease find enclosed\n")),
    "lines without a header": (Reason.NO_HEADER, _lines(lambda lines: lines[1:])),
    "a newer major": (Reason.UNKNOWN_MAJOR, _header(major=FORMAT_MAJOR + 1)),
    "a major that is no number": (Reason.UNKNOWN_MAJOR, _header(major="2")),
    "a file that ends in the middle": (Reason.TRUNCATED, lambda: packed(golden(2))[:-200]),
    "a file without its trailer": (Reason.TRUNCATED, _lines(lambda lines: lines[:-1])),
    "a line that is no JSON": (
        Reason.CORRUPT_LINES,
        lambda: packed(golden(2).replace(b'"kind":"lease"', b'"kind":"le', 1)),
    ),
    "a number that is none": (Reason.CORRUPT_LINES, lambda: packed(golden(2).replace(b'"uid":0', b'"uid":NaN', 1))),
    "brackets without an end": (
        Reason.CORRUPT_LINES,
        lambda: packed(
            golden(2).replace(b'{"device"', b"[" * 100_000 + b'{"device"', 3).replace(b"[" * 100_000, b"", 2)
        ),
    ),
    "a line of another snapshot": (
        Reason.FOREIGN_LINES,
        lambda: packed(sealed([*lines_of(golden(2))[:-1], lines_of(golden(1))[1]])),
    ),
    "a line that was lost": (Reason.COUNTS_DIFFER, _lines(lambda lines: lines[:3] + lines[4:])),
    "a line that is there twice": (Reason.COUNTS_DIFFER, _lines(lambda lines: [*lines[:3], *lines[2:]])),
    "a line that was changed": (Reason.CHECKSUM_DIFFERS, lambda: packed(golden(2).replace(b"REJECTED", b"DETECTER"))),
    "lines in another order": (Reason.DIGEST_DIFFERS, _lines(lambda lines: [lines[0], *lines[1:-1][::-1], lines[-1]])),
    "no newline at the end": (Reason.NO_FINAL_NEWLINE, lambda: packed(golden(2).rstrip(b"\n"))),
    "a clock before 1970": (Reason.BAD_CLOCK, _header(wallMs=-1)),
    "a clock that is no number": (Reason.BAD_CLOCK, _header(engineMs="now")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_reason(fault: str) -> None:
    reason, data = FAULTS[fault]
    (member,) = judged(data())
    assert member.reason is reason, member.detail
    assert member.detail, "people are told more"


def test_every_reason_has_a_case() -> None:
    assert {reason for reason, _ in FAULTS.values()} == set(Reason)


def test_a_snapshot_cut_anywhere_is_never_taken() -> None:
    data = packed(golden(2))
    for length in range(0, len(data) - 8, 31):
        assert {member.reason for member in judged(data[:length])} == {Reason.TRUNCATED}, length


def test_a_snapshot_that_lacks_only_its_last_bytes_is_taken_and_the_file_is_reported_as_truncated() -> None:
    """All of its lines are there; only the checksum of gzip is not."""
    assert reasons(judged(packed(golden(2))[:-3])) == [None, Reason.TRUNCATED]


def test_a_flipped_bit_is_detected() -> None:
    data = packed(golden(2))
    for place in range(10, len(data) - 8, 61):
        hurt = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        assert all(member.reason for member in judged(hurt)), place


def test_a_higher_minor_with_kinds_and_fields_of_its_own_is_taken() -> None:
    header, *rest = lines_of(golden(2))[:-1]
    new = {"device": header["device"], "snapshot": header["snapshot"], "kind": "weather", "rain": True}
    (member,) = judged(packed(sealed([{**header, "minor": 7, "mood": "good"}, *rest, new])))
    assert member.reason is None


def test_an_empty_file_is_a_truncated_one() -> None:
    assert reasons(judged(b"")) == reasons(judged(gzip.compress(b""))) == [Reason.TRUNCATED]


@pytest.mark.parametrize(
    ("name", "value"),
    [("engineMs", "12"), ("engineMs", 1.0), ("engineMs", 2**63), ("clean", 1), ("counts", {"x": "y"}), ("ms", "NaN")],
)
def test_a_field_of_another_type_is_a_fault_of_its_line(name: str, value: object) -> None:
    header, *rest = lines_of(golden(2))[:-1]
    (member,) = judged(packed(sealed([header, {**rest[0], name: value}, *rest[1:]])))
    assert member.reason is Reason.CORRUPT_LINES
    assert name in member.detail


def test_a_number_that_no_number_can_hold_is_a_fault_of_its_line() -> None:
    text = golden(2)
    (member,) = judged(packed(text.replace(b'"value":', b'"value":1e400,"was":', 1)))
    assert member.reason is Reason.CORRUPT_LINES


def test_uncompressed_lines_are_checked_like_those_of_a_gzip_file() -> None:
    (member,) = check(io.BytesIO(golden(2)), compressed=False)
    assert (member.reason, member.header["major"]) == (None, 2)
