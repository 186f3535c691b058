"""Files with whatever fault, beside good ones: each fault has its reason, and the good ones are taken."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F

from postroom_common.snapshot import RENAMED, Kind, upgrade
from postroom_pipeline.bronze import inventory
from postroom_pipeline.bronze import lines as bronze_lines
from postroom_pipeline.bronze.admission import sums, verdicts, with_endings
from postroom_pipeline.bronze.rejects import rejects
from postroom_pipeline.schema.snapshot import event_schema, length_of_event, reading_schema, snake, wide_schema
from postroom_pipeline.silver.snapshots import ORIGINS
from tests.pipeline.conftest import compiling_nothing
from tests.pipeline.making import Device, bundle, replace_text, resealed, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path(__file__).resolve().parents[1] / "vectors" / "snapshot"
Lines = list[bytes]
#: Signs and numbers that other readers of JSON write in other ways.
BODY = '{"n":1.10,"e":1E2,"i":12345678901234567890.10, "s":"\\u00e9 \u00e9\u2028\\/"}'


class Case(NamedTuple):
    """A fault: what it does to the lines of a whole snapshot, and the reasons that the file then has."""

    make: Callable[[Path], object]
    reasons: tuple[str, ...]


def text_case(change: Callable[[Lines], bytes], *reasons: str) -> Case:
    """A fault of the text: the trailer stays as it was."""
    return Case(lambda path: replace_text(path, change(text_of(path).splitlines(keepends=True))), reasons)


def bytes_case(change: Callable[[bytes], bytes], *reasons: str) -> Case:
    """A fault of the packed file."""
    return Case(lambda path: path.write_bytes(change(path.read_bytes())), reasons)


def sealed_case(change: Callable[[Lines], Lines], *reasons: str) -> Case:
    """What another writer made: the trailer fits."""
    return Case(lambda path: replace_text(path, resealed(change(text_of(path).splitlines()[:-1]))), reasons)


def reported(lines: Lines, number: int, **fields: Any) -> Lines:
    """The lines with other fields in one of them."""
    changed = json.dumps({**json.loads(lines[number]), **fields}, separators=(",", ":")).encode()
    return [*lines[:number], changed, *lines[number + 1 :]]


def named(name: str, *reasons: str) -> Case:
    """The same file by another name."""
    return Case(lambda path: path.rename(path.with_name(name)), reasons)


def as_bare_lines(path: Path) -> None:
    path.with_suffix("").write_bytes(text_of(path))
    path.unlink()


def as_too_large(path: Path) -> None:
    path.unlink()
    with path.with_suffix("").open("wb") as file:
        file.truncate(inventory.LARGEST_FILE_BYTES + 1)


def as_tar(path: Path) -> None:
    with tarfile.open(path.with_name("S22.tar"), "w") as archive:
        archive.add(path)
    path.unlink()


TRUNCATED, CORRUPT, DIFFER = "truncated", "corrupt_lines", "counts_differ"
CASES = {
    "S1-cut": bytes_case(lambda data: data[: len(data) // 2], TRUNCATED),
    "S1-cut-behind-the-head": bytes_case(lambda data: data[:30], TRUNCATED),
    "S1-last-bytes": bytes_case(lambda data: data[:-3], TRUNCATED),
    "S1-no-trailer": text_case(lambda lines: b"".join(lines[:-1]), TRUNCATED),
    "S1-no-header": text_case(lambda lines: b"".join(lines[1:]), "no_header"),
    "S1-zeros-behind": bytes_case(lambda data: data + bytes(512), TRUNCATED),
    "empty": bytes_case(lambda data: b"", "empty"),
    "empty-gzip": bytes_case(lambda data: gzip.compress(b"", mtime=0), "empty"),
    "blank": text_case(lambda lines: b"\n\n", "empty"),
    "not-gzip": bytes_case(gzip.decompress, "not_gzip"),
    "S4": named("S4.jsonl", "not_json"),
    "S5-garbage": text_case(lambda lines: b"".join([*lines[:3], b"garbage\n", *lines[3:]]), CORRUPT),
    "S5-array": text_case(lambda lines: b"".join([*lines[:3], b'[{"device":"x"}]\n', *lines[3:]]), CORRUPT),
    "S5-broken": text_case(lambda lines: b"".join([*lines[:3], lines[3][:-9] + b"\n", *lines[4:]]), CORRUPT),
    "S5-text": text_case(lambda lines: b"just\nsome\ntext\n", "not_json"),
    "S5-blank-lines": text_case(b"\n".join),
    "S6-trailing": text_case(lambda lines: b"".join([*lines[:3], lines[3][:-1] + b" x\n", *lines[4:]]), CORRUPT),
    "S6-glued": text_case(lambda lines: b"".join([*lines[:3], lines[3][:-1], *lines[4:]]), CORRUPT),
    "S6-no-newline": text_case(lambda lines: b"".join(lines)[:-1], "no_final_newline"),
    "S8-nan": text_case(lambda lines: b"".join(lines).replace(b'"value":', b'"value":NaN,"was":', 1), CORRUPT),
    "S8-1e400": text_case(lambda lines: b"".join(lines).replace(b'"value":', b'"value":1e400,"was":', 1), CORRUPT),
    "S9-text-time": sealed_case(lambda lines: reported(lines, 4, wallMs="2026-11-28T10:00:00Z"), CORRUPT),
    "S12-text": sealed_case(lambda lines: reported(lines, 5, payload=BODY)),
    "S12-no-text": sealed_case(lambda lines: reported(lines, 5, payload={"n": [1, "2"]})),
    "S14-new-field": sealed_case(lambda lines: reported(reported(lines, 0, minor=7, mood="good"), 3, rain=True)),
    "S14-new-kind": sealed_case(lambda lines: [*lines, lines[1].replace(b'"queue"', b'"weather"', 1)]),
    "S14-now-an-object": sealed_case(lambda lines: reported(lines, 3, wallMs={"ms": 1}), CORRUPT),
    "S14-major": sealed_case(lambda lines: reported(lines, 0, major=3), "unknown_major"),
    "clock": sealed_case(lambda lines: reported(lines, 0, wallMs=2**60), "bad_clock"),
    "clock-of-no-number": sealed_case(lambda lines: reported(lines, 0, wallMs="noon"), "bad_clock"),
    "line-lost": text_case(lambda lines: b"".join([*lines[:3], *lines[4:]]), DIFFER),
    "line-twice": text_case(lambda lines: b"".join([*lines[:3], *lines[2:]]), DIFFER),
    "line-changed": text_case(lambda lines: b"".join(lines).replace(b'"ready":', b'"ready":1', 1), "checksum_differs"),
    "other-device": sealed_case(lambda lines: reported(lines, 3, device="stranger"), "foreign_lines"),
    "S19-renamed": named("any other name 100%.jsonl.gz"),
    "S19-plain": Case(as_bare_lines, ()),
    "S21-part": named("S21.jsonl.gz.part"),
    "S21-copying": named("S21.jsonl.gz._COPYING_"),
    "S21-hidden": named(".S21.jsonl.gz"),
    "S21-unknown": named("S21-unknown.gz", "unknown_name"),
    "colon": named("colon.10:15.jsonl.gz", "unreadable"),
    "too-large": Case(as_too_large, ("too_large",)),
    "S22": Case(as_tar, ("archive",)),
}
#: Not read, and no fault of anybody's.
UNSEEN = {name for name in CASES if name in ("S21-part", "S21-copying", "S21-hidden")}
#: Nothing of the snapshot is hurt, and the file has something more.
WHOLE = {"S1-last-bytes", "S1-zeros-behind", "S5-garbage", "S5-array"}


class Reported(NamedTuple):
    """What is said of a directory: snapshots that are taken, and reasons by the name of the file."""

    taken: set[str]
    reasons: dict[str, list[str]]
    rows: list[dict[str, Any]]
    #: By the snapshot.
    payloads: dict[str, str]


def _nothing() -> None:
    pass


def look_at(
    spark: SparkSession,
    landing: Path,
    before_bytes: Callable[[], object] = _nothing,
    before_lines: Callable[[], object] = _nothing,
) -> Reported:
    """Everything from the directory to admission, without a table being written."""
    listed = inventory.listed(spark, str(landing))
    before_bytes()
    named = inventory.names(listed)
    seen = inventory.hashed(spark, listed, named).persist()
    known = spark.createDataFrame([], inventory.INVENTORY.schema)
    fresh = inventory.fresh(seen, known).persist()
    refused = inventory.unread(spark, listed, named, seen).persist()
    files = bronze_lines.files_of(spark, str(landing), fresh, fresh.count(), inventory.others(seen, fresh, refused))
    before_lines()
    lines = bronze_lines.lines(files).persist()
    summed = sums(lines, fresh).persist()
    read = with_endings(fresh, lines, summed).persist()
    rows = verdicts(lines, summed, read, spark.createDataFrame([], ORIGINS.schema)).persist()
    reported = rejects(rows, lines, read, refused).collect()
    taken = [row.asDict() for row in rows.where("reason IS NULL").collect()]
    payloads = {row["snapshot"]: row["payload"] for row in columns_of(lines, Kind.EVENT, Kind.DEAD) if row["payload"]}
    for frame in (seen, fresh, refused, lines, summed, read, rows):
        frame.unpersist()
    reasons: dict[str, list[str]] = {}
    for row in reported:
        reasons.setdefault(row["path"].rpartition("/")[2], []).append(row["reason"])
    return Reported({row["snapshot"] for row in taken}, reasons, taken, payloads)


def columns_of(lines: DataFrame, *kinds: Kind) -> list[dict[str, Any]]:
    """The lines of these kinds with their columns."""
    rows = []
    for kind in kinds:
        of_kind = lines.where(F.col("kind") == kind.value)
        frame = of_kind if kind is Kind.EVENT else bronze_lines.of_kind(of_kind, kind)
        rows += [{**row.asDict(), "kind": kind.value} for row in frame.collect()]
    return rows


def snapshot_of(folder: Path, name: str) -> tuple[Path, str]:
    """A whole snapshot of a device of that name, and its id."""
    device = Device(name)
    for key in ("a", "b"):
        device.publish(f"msg:{key}")
    device.lease("msg:a")
    path = device.export(folder, name)
    return path, json.loads(text_of(path).splitlines()[0])["snapshot"]


@pytest.fixture(scope="module")
def corpus(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Reported, dict[str, str]]:
    """All faults in one directory, beside two good files; each device is named after its case."""
    landing = tmp_path_factory.mktemp("landing")
    ids = {}
    for name in ("good-1", "good-2"):
        ids[name] = snapshot_of(landing, name)[1]
    for name, case in CASES.items():
        path, ids[name] = snapshot_of(landing, name)
        case.make(path)
    return look_at(spark, landing), ids


@pytest.mark.parametrize("name", sorted(CASES))
def test_each_fault_has_its_reason(corpus: tuple[Reported, dict[str, str]], name: str) -> None:
    found, ids = corpus
    files = {file: reasons for file, reasons in found.reasons.items() if file.startswith(f"{name}.")}
    assert [reason for reasons in files.values() for reason in reasons] == list(CASES[name].reasons)
    is_whole = not CASES[name].reasons or name in WHOLE
    assert (ids[name] in found.taken) == (is_whole and name not in UNSEEN)


def test_good_files_among_bad_ones_are_taken(corpus: tuple[Reported, dict[str, str]]) -> None:
    found, ids = corpus
    assert {ids["good-1"], ids["good-2"]} <= found.taken


def test_unknown_fields_and_kinds_are_counted(corpus: tuple[Reported, dict[str, str]]) -> None:
    found, ids = corpus
    counts = {row["snapshot"]: (row["unknown_fields"], row["unknown_lines"]) for row in found.rows}
    assert counts[ids["S14-new-field"]] == (2, 0)
    assert counts[ids["S14-new-kind"]] == (0, 1)
    assert counts[ids["good-1"]] == (0, 0)


def test_a_text_body_is_taken_unchanged_and_another_value_as_its_json(
    corpus: tuple[Reported, dict[str, str]],
) -> None:
    found, ids = corpus
    assert (found.payloads[ids["S12-text"]], found.payloads[ids["S12-no-text"]]) == (BODY, '{"n":[1,"2"]}')


def test_in_a_bundle_a_fault_costs_at_most_what_follows_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more files than are told to the reader by name."""
    monkeypatch.setattr(bronze_lines, "_NAMED_FILES", 1)
    singles = tmp_path / "single"
    made = {name: snapshot_of(singles, name) for name in ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")}
    paths = {name: path for name, (path, _) in made.items()}
    landing = tmp_path / "landing"
    landing.mkdir()
    CASES["line-lost"].make(paths["b"])
    bundle(landing / "one-bad.jsonl.gz", [paths["a"], paths["b"], paths["c"]])
    packed = bytearray(paths["e"].read_bytes())
    packed[20:60] = bytes(40)
    paths["e"].write_bytes(bytes(packed))
    bundle(landing / "damaged.jsonl.gz", [paths["d"], paths["e"], paths["f"]])
    bundle(landing / "twice.jsonl.gz", [paths["g"], paths["g"], paths["h"]])
    (landing / "g.jsonl.gz").write_bytes(paths["g"].read_bytes())
    changed = resealed(reported(text_of(paths["c"]).splitlines()[:-1], 3, priority=9))
    replace_text(landing / "changed.jsonl.gz", changed)
    names = {"device": "a", "snapshot": "bundle", "kind": "bundle", "members": [made["a"][1], "0" * 32]}
    (landing / "named.jsonl").write_text(f"{json.dumps(names)}\n")
    cut = bundle(landing / "cut.jsonl.gz", [paths["i"], paths["j"]])
    cut.write_bytes(cut.read_bytes()[: paths["i"].stat().st_size + 25])
    with compiling_nothing(spark):
        found = look_at(spark, landing)
    assert found.taken == {made[name][1] for name in ("a", "c", "d", "g", "h", "i")}
    assert found.reasons.pop("one-bad.jsonl.gz") == [DIFFER]
    assert set(found.reasons.pop("damaged.jsonl.gz")) == {TRUNCATED}
    assert set(found.reasons.pop("cut.jsonl.gz")) == {TRUNCATED}
    assert found.reasons.pop("named.jsonl") == ["missing", "missing"]
    assert sorted(found.reasons.values()) == [["duplicate"], ["other_content"]]


def test_a_file_removed_while_it_is_read_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    at_once, _ = snapshot_of(tmp_path, "gone-at-once")
    later, _ = snapshot_of(tmp_path, "gone-later")
    _, other = snapshot_of(tmp_path, "other")
    with compiling_nothing(spark):
        found = look_at(spark, tmp_path, at_once.unlink, later.unlink)
    assert (found.taken, found.reasons) == ({other}, {at_once.name: ["vanished"], later.name: [TRUNCATED]})


def test_golden_snapshots_of_each_version_are_read_as_the_reader_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = []
    for path in sorted(GOLDEN.glob("v*.jsonl")):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        wanted += [upgrade(json.loads(line)) for line in path.read_text().splitlines()]
    everything = spark.createDataFrame([], "file string")
    rows = columns_of(bronze_lines.lines(bronze_lines.Files(spark, str(tmp_path), everything, others=())), *Kind)
    types = {field.name: field.dataType.simpleString() for field in wide_schema().fields}
    columns = {*(snake(name) for name in types), "file"}
    fields = [{name: value for name, value in row.items() if name in columns} for row in rows]
    reported = [{name: value for name, value in row.items() if value is not None} for row in fields]
    read = sorted(json.dumps(row, sort_keys=True) for row in reported if row.pop("file"))
    assert read == sorted(json.dumps(_in_columns(line, types), sort_keys=True) for line in wanted)


def test_the_read_schema_has_every_field_of_every_version_of_the_format() -> None:
    names = reading_schema().names
    assert len(names) == len(set(names))
    assert {old for olds in RENAMED.values() for old in olds} <= set(names)
    assert snake("asOfEvent") == "as_of_event"


def test_an_event_as_devices_write_it_is_as_long_as_its_fields_and_any_other_line_is_longer(
    spark: SparkSession,
) -> None:
    golden = [line for path in sorted(GOLDEN.glob("v*.jsonl")) for line in path.read_text().splitlines()]
    events = {line: {*json.loads(line)} for line in golden if json.loads(line)["kind"] == Kind.EVENT.value}
    plain = [line for line, names in events.items() if not names & {"payload", "attributes", "ext"}]
    line = plain[0]
    others = [one for one in events if one not in plain]
    others += [
        line.replace("{", '{"new":0,', 1),
        line.replace("{", "{ ", 1),
        f"{line} ",
        f"{line}{{}}",
        f'{line}{{"a"}}',
    ]
    others += [line.replace('"kind"', '"\\u006bind"'), line.replace('"event":', '"event":0,"event":')]
    texts = spark.createDataFrame([(one,) for one in (*plain, *others)], "line string")
    read = texts.select(F.from_json("line", event_schema()).alias("read"), F.octet_length("line").alias("bytes"))
    found = [row[0] for row in read.select("read.*", "bytes").select(F.col("bytes") - length_of_event()).collect()]
    assert set(found[: len(plain)]) == {0}
    assert min(found[len(plain) :]) > 0


def _in_columns(line: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    """A line as its row would be: in the schema's order, JSON as text."""
    row = {}
    for name, kind in types.items():
        value = line.get(name)
        if value is None or name == "kind":
            continue
        if kind == "string" and not isinstance(value, str):
            value = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        if kind == "double":
            value = float(value)
        row[snake(name)] = value
    return {**row, "kind": line["kind"]}
