"""Reports for people: their content and form, and that a page is self-contained whatever the tables contain."""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroom_client.cli.arguments import parse
from postroom_pipeline.errors import EnvironmentProblem, UsageError
from postroom_pipeline.jobs.report import Scope, report
from postroom_pipeline.pages.findings import worded
from postroom_pipeline.pages.rules import RULES, Rule
from postroom_pipeline.pages.site import page_name
from postroom_pipeline.pages.text import duration, quoted, shown
from postroom_pipeline.reports import ALL, device_health
from postroom_pipeline.spark.warehouse import Warehouse

from .silver import frames_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("quick")

Tables = dict[str, list[dict[str, Any]]]

DAY = dt.date(2026, 11, 27)
NOON = dt.datetime(2026, 11, 27, 12)
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202eevil\u0000'\"&"


class Silent:
    """A progress that nobody looks at."""

    def say(self, text: str) -> None:
        pass

    def stage(self, name: str) -> Any:
        import contextlib

        return contextlib.nullcontext()


def write(warehouse: Warehouse, spark: SparkSession, tables: Tables) -> None:
    """Tables of reports with these rows; a column that a row does not name is null."""
    for name, rows in tables.items():
        table = ALL[name].TABLE
        records = [tuple(row.get(column) for column in table.schema.names) for row in rows]
        assert not {column for row in rows for column in row} - set(table.schema.names)
        warehouse.write(table, spark.createDataFrame(records, table.schema).coalesce(1), as_it_comes=True)


def health(device: str, **more: Any) -> dict[str, Any]:
    row = {"device": device, "rank": 1, "score": 0, "last_at": NOON, "snapshots": 4, "dead_letters": 0, "deaths": 0}
    return row | {"conflicts": 0} | more


def flow(device: str, queue: str, hour: int, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("published", "leased", "acked", "released", "retried", "died", "dropped"), 0)
    row = {"device": device, "root": "r", "queue": queue, "hour": NOON.replace(hour=hour), "day": DAY}
    return row | counts | {"reprocessed": 0, "moved": 0, "published_bytes": 0, "busiest_minute": 0} | more


def balance(device: str, queue: str, **more: Any) -> dict[str, Any]:
    names = ("opening", "published", "moved_in", "acked", "moved_out", "expected", "present", "difference")
    dropped = ("dropped_expired", "dropped_purged", "dropped_limits", "dropped_failed", "missing_events")
    row = {"device": device, "root": "r", "queue": queue, "span": "all", "to_snapshot": "s", "status": "balanced"}
    return row | dict.fromkeys((*names, *dropped), 0) | {"counters_differ": False, "to_at": NOON} | more


def poison(device: str, queue: str, message: str, **more: Any) -> dict[str, Any]:
    row = {"device": device, "root": "r", "queue": queue, "message": message, "failures": 8, "consumers": 2}
    row |= {"others_done": 31, "others_failed": 0, "reason_code": "RETRY_LIMIT", "cause": "bad body", "state": "dead"}
    return row | {"from_at": NOON.replace(hour=9), "to_at": NOON, "same_body": 1} | more


#: A fleet of two: one is well, of the other everything is told in names that mean harm.
TROUBLED: Tables = {
    "device_health": [health("pump-1", rank=2), health(HOSTILE, rank=1, score=90, worst="poison_messages")],
    "throughput": [flow(HOSTILE, HOSTILE, 9, published=7), flow("pump-1", "work", 11, published=3, acked=3)],
    "audit": [
        balance("pump-1", "work", published=3, acked=3),
        balance(HOSTILE, HOSTILE, published=7, expected=7, present=5, difference=-2, status="unbalanced"),
        balance(HOSTILE, HOSTILE, span="between", expected=7, present=5, difference=-2, status="unbalanced"),
    ],
    "poison_messages": [poison(HOSTILE, HOSTILE, f"{HOSTILE}{number}") for number in range(5)],
    "clock_trouble": [
        {
            "device": "pump-1",
            "root": "r",
            "epoch": 1,
            "event": 5,
            "trouble": "step",
            "step_ms": -90_000,
            "wall_at": NOON,
        }
    ],
}


class Page(HTMLParser):
    """A page as its tags and texts; a tag that is not closed, or refers to something outside, is an error."""

    VOID = frozenset({"meta", "link", "path", "line", "rect"})

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.open, self.ids, self.links = path, [], set(), []  # type: ignore[var-annotated]
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(path.read_text())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)
        given = dict(attributes)
        assert len(given) == len(attributes), f"an attribute twice in {tag}"
        assert not [name for name in given if name.startswith("on")]
        if given.get("id"):
            assert given["id"] not in self.ids
            self.ids.add(given["id"])
        for name in ("href", "src", "xlink:href", "data", "action"):
            if name in given:
                self.links.append(str(given[name]))
        assert "url(" not in str(given.get("style", ""))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"{tag} ends within {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def leads_to(self) -> list[Path]:
        """The pages that it links to; every link must end at a page or at a part of this one."""
        found = []
        for link in self.links:
            if link.startswith("#"):
                assert link[1:] in self.ids, link
            elif link != "data:,":
                assert not re.match(r"[a-z]+:|/", link), f"{link} leads out"
                found.append((self.path.parent / link).resolve())
                assert found[-1].is_file(), link
        return found


@pytest.fixture(scope="module")
def troubled(spark: SparkSession, quick: None, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The tables of ``TROUBLED``, for tests that only read."""
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("troubled")))
    write(warehouse, spark, TROUBLED)
    return warehouse


def make(warehouse: Warehouse, spark: SparkSession, out: Path, scope: Scope | None = None, **more: Any) -> Path:
    options: Any = {"form": "html", "top": 50, "progress": Silent()} | more
    return Path(report(spark, warehouse, str(out), scope or Scope(), **options).removeprefix("file:"))


def test_pages_are_self_contained_and_show_hostile_names_as_they_are(
    spark: SparkSession, troubled: Warehouse, tmp_path: Path
) -> None:
    fleet = Page(make(troubled, spark, tmp_path / "first", top=3))
    devices = [Page(path) for path in fleet.leads_to()]
    assert {page.path.name for page in devices} == {"pump-1.html", page_name(HOSTILE)}
    assert all(page.leads_to() == [fleet.path] for page in devices)
    for page in (fleet, *devices):
        assert "script" not in page.tags
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page.path.read_text())
    assert "<script>alert(1)</script>⟨U+001B⟩[31m⟨U+202E⟩evil⟨U+0000⟩'\"&" in fleet.text
    assert "2 more rows are not shown" in fleet.text
    # Equal tables make equal bytes.
    again = make(troubled, spark, tmp_path / "again", top=3)
    assert again.read_bytes() == fleet.path.read_bytes()
    for page in devices:
        assert (again.parent / "devices" / page.path.name).read_bytes() == page.path.read_bytes()


def test_the_worst_finding_comes_first_with_its_numbers_and_advice(
    spark: SparkSession, troubled: Warehouse, tmp_path: Path
) -> None:
    text = Page(make(troubled, spark, tmp_path / "report")).text.partition("What is wrong")[2]
    text = text.partition("What is wrong")[2]
    places = [text.index(title) for title in ("The audit does not balance", "Poison messages", "The clock is wrong")]
    assert places == sorted(places)
    assert "3 findings, the worst first (1 lost, 1 failing, 1 odd)" in text
    assert "−2 in all" in text
    assert "5 messages fail at every delivery (8 times at most); meanwhile 31 others were done" in text
    assert "RETRY_LIMIT: bad body" in text
    assert "since 2026-11-27 09:00 UTC" in text
    assert "1 times the clock was set, by −1 min 30 s at most" in text
    assert "The table latency_daily is not there" in text


def test_a_fleet_that_is_well_says_so_in_one_line(spark: SparkSession, warehouse: Warehouse, tmp_path: Path) -> None:
    empty: Tables = {name: [] for name in ALL}
    well = empty | {
        "device_health": [health("pump-1")],
        "audit": [balance("pump-1", "work", published=3, acked=3)],
        "throughput": [flow("pump-1", "work", 11, published=3, acked=3)],
    }
    write(warehouse, spark, well)
    page = Page(make(warehouse, spark, tmp_path / "report"))
    assert "Nothing is wrong: the audit balances" in page.text
    assert 'class="finding' not in page.path.read_text()


def test_a_report_is_limited_to_the_requested_device_and_days(
    spark: SparkSession, troubled: Warehouse, tmp_path: Path
) -> None:
    page = make(troubled, spark, tmp_path / "one", Scope("pump-1"))
    assert page.name == "pump-1.html"
    text = Page(page).text
    assert "Device pump-1" in text
    assert "1 findings, the worst first (1 odd)" in text
    later = make(troubled, spark, tmp_path / "later", Scope("pump-1", since=DAY + dt.timedelta(1)))
    assert "The clock is wrong" not in Page(later).text
    with pytest.raises(UsageError, match="no report has a device 'pump-9'"):
        make(troubled, spark, tmp_path / "none", Scope("pump-9"))


def test_tables_are_exported_completely_and_a_spreadsheet_takes_no_text_for_a_formula(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    rows = [poison("pump-1", "=1+1", f"m{number:02}") for number in (2, 1)]
    write(warehouse, spark, {"poison_messages": rows, "clock_trouble": TROUBLED["clock_trouble"]})
    for form in ("csv", "json"):
        make(warehouse, spark, tmp_path / form, form=form, top=1)
    with (tmp_path / "csv" / "poison_messages.csv").open(newline="") as file:
        reported = list(csv.DictReader(file))
    assert [row["message"] for row in reported] == ["m01", "m02"]
    assert {row["queue"] for row in reported} == {"'=1+1"}
    assert reported[0]["to_at"] == "2026-11-27T12:00:00.000Z"
    assert reported[0]["payload_digest"] == ""
    lines = (tmp_path / "json" / "poison_messages.json").read_text().splitlines()
    assert [json.loads(line)["queue"] for line in lines] == ["=1+1", "=1+1"]
    findings = [json.loads(line) for line in (tmp_path / "json" / "findings.json").read_text().splitlines()]
    assert [one["kind"] for one in findings] == ["poison", "clock"]
    assert findings[0]["facts"]["n"] == 2


def test_without_any_report_the_error_says_how_to_make_one(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentProblem, match="there are no reports; postroom-pipeline ingest"):
        make(warehouse, spark, tmp_path / "report")


def test_no_two_devices_share_a_page() -> None:
    names = ["a", "A", "a ", "a/../b", "..", ".", "", "con", "\u00e9", "e\u0301", "x" * 300, "x" * 301, HOSTILE, "a~1"]
    pages = [page_name(name).lower() for name in names]
    assert len(set(pages)) == len(names)
    assert not pages[names.index("con")].startswith("con.")
    assert all(re.fullmatch(r"[a-z0-9_-][a-z0-9._~-]*\.html", page) for page in pages)


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.run.startswith("postroom ")], ids=lambda rule: rule.kind
)
def test_a_command_named_by_a_finding_exists(rule: Rule) -> None:
    facts = dict.fromkeys((*rule.by, *rule.facts), "-it's")
    row = {"device": "d", "queue": "-it's", "kind": rule.kind, "since": None, "n": 1, "facts": json.dumps(facts)}
    options = parse(shlex.split(worded(row).run)[1:])
    assert {getattr(options, name, "-it's") for name in ("queue", "messageKey")} == {"-it's"}


def test_names_are_quoted_as_one_word_for_a_shell() -> None:
    assert quoted("it's") == """'it'"'"'s'"""
    assert quoted("a\x1b'\\") == r"$'a\U0000001b\'\\'"
    assert shown("a\u2066b\n") == "a⟨U+2066⟩b⟨U+000A⟩"


@pytest.mark.parametrize(
    ("ms", "reported"),
    [(0, "0 ms"), (999, "999 ms"), (2_500, "2.5 s"), (59_999, "60 s"), (3_600_000, "1 h"), (-90_061_000, "−1 d 1 h")],
)
def test_durations_are_shown_in_their_largest_units(ms: int, reported: str) -> None:
    assert duration(ms) == reported


def test_a_device_is_silent_if_it_is_many_of_its_intervals_behind_the_others(spark: SparkSession) -> None:
    def taken(device: str, *hours: int) -> list[dict[str, Any]]:
        moments = [NOON + dt.timedelta(hours=hour) for hour in hours]
        return [
            {
                "device": device,
                "snapshot": f"{device}-{hour}",
                "root": "r",
                "wall_at": moment,
                "wall_ms": round(moment.replace(tzinfo=dt.UTC).timestamp() * 1000),
                "clock_suspect": False,
            }
            for hour, moment in zip(hours, moments, strict=True)
        ]

    rows = taken("off", 0, 6, 12, 18) + taken("ahead", 0, 6, 12, 500) + taken("slow", 0, 20, 24, 30)
    rows += [row for device in "abcd" for row in taken(device, 0, 6, 12, 18, 24, 30, 36, 42)]
    frames = frames_of(spark, {"snapshots": rows})
    known = {**frames, **{name: spark.createDataFrame([], module.TABLE.schema) for name, module in ALL.items()}}
    reported = device_health.build({need: known[need] for need in device_health.NEEDS}).collect()
    assert {row["device"]: row["behind_ms"] // 3_600_000 for row in reported if row["behind_ms"]} == {
        "off": 24,
        "slow": 12,
    }
    assert [(row["device"], row["score"], row["worst"]) for row in reported if row["silent"]] == [("off", 40, "silent")]
