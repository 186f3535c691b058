"""The example fleet: its ground truth agrees with the journals of its devices, and their faults are present."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fleet.device import BEGIN_WALL_MS, COMMANDS, DAY_MS, TELEMETRY
from fleet.faults import ALONE, FAULTS, go_together
from fleet.plan import Plan, live
from postroom_common.events import Event, decode_event
from postroom_common.snapshot_reader import check

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 300
#: Sets of faults that devices of these tests have, each device once.
SETS = (
    (),
    ("clock-steps", "hung-consumer", "poison"),
    ("power-cuts", "retry-storm"),
    ("duplicates", "no-clock"),
    ("dead-consumer",),
    ("duplicates-refused",),
    ("slow-consumer",),
    *((name,) for name in sorted(ALONE)),
)


@dataclass
class Life:
    """A device whose time is over."""

    truth: dict[str, Any]
    directory: Path

    @cached_property
    def events(self) -> list[Event]:
        """What its journal still has."""
        files = sorted((self.directory / "root" / "journal").glob("*.jsonl"))
        return [decode_event(line) for path in files for line in path.read_bytes().splitlines()]

    def of(self, *types: str, queue: str = "") -> list[Event]:
        return [one for one in self.events if one["type"] in types and queue in ("", one.get("queue"))]

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of its snapshots, in order."""
        folder = self.directory.parent / "snapshots" / self.truth["device"]
        return [json.loads(line) for name in self.truth["snapshots"] for line in gzip.open(folder / name)]

    def facts(self, name: str) -> dict[str, Any]:
        found = next(one for one in self.truth["faults"] if one["name"] == name)
        assert found["happened"]
        facts: dict[str, Any] = found["facts"]
        return facts


Lived = Callable[[str], Life]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The device that has a fault ('': a healthy one), after eight hours."""
    out = tmp_path_factory.mktemp("fleet")
    lives: dict[tuple[str, ...], Life] = {}

    def life(fault: str) -> Life:
        names = next(one for one in SETS if fault in one or not (fault or one))
        if names not in lives:
            device = "-".join(names) or "healthy"
            truth = live(Plan(1, hours=8, every_hours=4, seed=7, busy=1.5), device, list(names), out)
            lives[names] = Life(truth, out / device)
        return lives[names]

    return life


# --- the truth ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["", *(one[0] for one in SETS if one and one[0] not in ("lost-segment",))])
def test_the_counts_agree_with_the_journal(lived: Lived, fault: str) -> None:
    life = lived(fault)
    reported = Counter((one["queue"], one["type"]) for one in life.events if "queue" in one)
    for queue, counts in life.truth["queues"].items():
        assert counts["published"] == reported[queue, "published"] > 0
        assert counts["deliveries"] == reported[queue, "leased"]
        assert counts["acked"] == reported[queue, "acked"]
        assert counts["dead"] == reported[queue, "died"]
        assert counts["purged"] == reported[queue, "dropped"]
        ended = [one["failure"]["reasonCode"] for one in life.of("retried", "died", queue=queue)]
        assert counts["failures"] == ended.count("NACKED") + ended.count("RETRY_LIMIT")


@pytest.mark.parametrize("fault", ["", *(one[0] for one in SETS if one)])
def test_every_message_is_accounted_for(lived: Lived, fault: str) -> None:
    for counts in lived(fault).truth["queues"].values():
        ends = ("acked", "purged", "dead", "ready", "inflight", "delayed", "held")
        assert counts["published"] == sum(counts[name] for name in ends)


@pytest.mark.parametrize("fault", ["", *(one[0] for one in SETS if one)])
def test_every_snapshot_is_complete_and_continues_the_one_before(lived: Lived, fault: str) -> None:
    life = lived(fault)
    folder = life.directory.parent / "snapshots" / life.truth["device"]
    headers = []
    for name in life.truth["snapshots"]:
        with (folder / name).open("rb") as file:
            members = list(check(file))
        assert [one.reason for one in members] == [None]
        headers.append(members[0].header)
    assert headers
    if fault not in ("put-back", "lost-segment"):
        assert all(header["continuous"] for header in headers[1:])


def test_a_healthy_device_has_no_findings(lived: Lived) -> None:
    life = lived("")
    assert life.truth["boots"] == 1 and life.truth["onAtTheEnd"]
    assert life.of("died", "retried", "gap") == []
    assert {one["attempt"] for one in life.of("leased")} == {1}
    assert {one["wallMs"] - one["engineMs"] for one in life.events} == {BEGIN_WALL_MS}
    for counts in life.truth["queues"].values():
        assert len(counts["publishToAckMs"]) == counts["acked"]


def test_latencies_are_those_between_the_events(lived: Lived) -> None:
    life = lived("")
    for queue, counts in life.truth["queues"].items():
        at = {
            (one["type"], one["key"]): one["engineMs"] for one in life.of("published", "leased", "acked", queue=queue)
        }
        acked = [key for type_, key in at if type_ == "acked"]
        assert counts["publishToAckMs"] == [at["acked", key] - at["published", key] for key in acked]
        assert counts["leaseToAckMs"] == [at["acked", key] - at["leased", key] for key in acked]


def test_the_same_seed_is_the_same_life(lived: Lived, tmp_path: Path) -> None:
    first = lived("poison").truth
    names = [one["name"] for one in first["faults"]]
    again = live(Plan(1, hours=8, every_hours=4, seed=7, busy=1.5), first["device"], names, tmp_path)
    assert again["queues"] == first["queues"]
    other = live(Plan(1, hours=1, every_hours=1, seed=8, busy=1.5), first["device"], [], tmp_path / "other")
    assert other["queues"][TELEMETRY]["publishToLeaseMs"][:5] != first["queues"][TELEMETRY]["publishToLeaseMs"][:5]


# --- the faults -----------------------------------------------------------------------------------------------


def test_poison_dies_after_all_its_attempts_and_nothing_else_dies(lived: Lived) -> None:
    life, facts = lived("poison"), lived("poison").facts("poison")
    assert {one["key"] for one in life.of("died")} == set(facts["messages"])
    attempts = Counter(one["key"] for one in life.of("leased", queue=facts["queue"]))
    assert {attempts[key] for key in facts["messages"]} == {facts["attempts"]}


def test_messages_of_a_hung_consumer_stay_leased_to_the_end(lived: Lived) -> None:
    life, facts = lived("hung-consumer"), lived("hung-consumer").facts("hung-consumer")
    extended = Counter(one["key"] for one in life.of("lease_extended"))
    assert facts["leased"] and all(extended[key] > 100 for key in facts["leased"])
    assert life.truth["queues"][COMMANDS]["inflight"] == len(facts["leased"])


def test_a_clock_that_is_set_wrong_moves_no_engine_time(lived: Lived) -> None:
    life, facts = lived("clock-steps"), lived("clock-steps").facts("clock-steps")
    offsets = [(one["engineMs"], one["wallMs"] - one["engineMs"] - BEGIN_WALL_MS) for one in life.events]
    assert {offset for _, offset in offsets} == {0, facts["aheadMs"]}
    wrong = [engine for engine, offset in offsets if offset]
    assert facts["fromMs"] <= wrong[0] and wrong[-1] <= facts["untilMs"]


def is_nacked(event: Event) -> bool:
    return bool(event["failure"]["reasonCode"] == "NACKED")


def test_in_a_retry_storm_few_messages_fail_often(lived: Lived) -> None:
    life, facts = lived("retry-storm"), lived("retry-storm").facts("retry-storm")
    retried = Counter(one["key"] for one in life.of("retried", queue=COMMANDS) if is_nacked(one))
    assert facts["failures"] == retried.total() > 20 * len(retried)


def test_after_a_power_cut_leased_messages_are_delivered_again_in_another_boot(lived: Lived) -> None:
    life, facts = lived("power-cuts"), lived("power-cuts").facts("power-cuts")
    again = {one["key"] for one in life.of("leased") if one["attempt"] > 1}
    assert facts["redelivered"] and set(facts["redelivered"]) <= again
    boots = {one["bootId"] for one in life.of("clock_marked")}
    assert len(boots) == life.truth["boots"] == 4
    assert all(one.startswith("test-") for one in boots)


def test_duplicates_without_a_key_are_two_messages_of_one_body(lived: Lived) -> None:
    life, facts = lived("duplicates"), lived("duplicates").facts("duplicates")
    bodies = {one["key"]: one["message"]["parts"] for one in life.of("published", queue=facts["queue"])}
    assert len(facts["pairs"]) >= 4
    assert all(bodies[first] == bodies[second] for first, second in facts["pairs"])


def test_a_device_without_a_clock_lives_in_1970_until_it_is_set(lived: Lived) -> None:
    life, facts = lived("no-clock"), lived("no-clock").facts("no-clock")
    early = [one for one in life.events if one["wallMs"] < 365 * DAY_MS]
    assert early[0]["wallMs"] == facts["wallMs"]
    assert early[-1]["wallMs"] <= facts["wallMs"] + facts["rightAgainMs"] - facts["wrongFromMs"]
    assert life.events[-1]["wallMs"] > BEGIN_WALL_MS
    engine = [one["engineMs"] for one in life.events]
    assert engine == sorted(engine)


def test_a_queue_whose_consumer_is_dead_grows(lived: Lived) -> None:
    life, facts = lived("dead-consumer"), lived("dead-consumer").facts("dead-consumer")
    assert max(one["engineMs"] for one in life.of("leased", queue=TELEMETRY)) <= facts["fromMs"]
    assert life.truth["queues"][TELEMETRY]["ready"] > 3 * len(facts["leased"]) > 0


def test_duplicates_with_a_key_are_refused(lived: Lived) -> None:
    life, facts = lived("duplicates-refused"), lived("duplicates-refused").facts("duplicates-refused")
    assert life.truth["queues"][COMMANDS]["duplicatesRefused"] == len(facts["messages"]) >= 4


def test_a_slow_consumer_needs_longer_than_before(lived: Lived) -> None:
    took = lived("slow-consumer").truth["queues"][COMMANDS]["leaseToAckMs"]
    assert median(took[-10:]) > 4 * median(took[:10])


def test_a_lost_segment_is_missing_everywhere_and_the_device_says_so(lived: Lived) -> None:
    life, facts = lived("lost-segment"), lived("lost-segment").facts("lost-segment")
    lost = set(range(facts["firstEvent"], facts["lastEvent"] + 1))
    assert not lost & {one["id"] for one in life.events}
    assert not lost & {one["event"] for one in life.lines if one["kind"] == "event"}
    last = [one for one in life.lines if one["kind"] == "header"][-1]
    assert [facts["firstEvent"], facts["lastEvent"]] in last["holes"]


def test_a_restored_copy_reuses_event_numbers(lived: Lived) -> None:
    life, facts = lived("put-back"), lived("put-back").facts("put-back")
    reported: dict[tuple[Any, ...], set[Any]] = {}
    for one in life.lines:
        if one["kind"] == "event" and "message" in one:
            reported.setdefault((one["root"], one["epoch"], one["event"]), set()).add((one["type"], one["message"]))
    assert any(len(contents) > 1 for contents in reported.values())
    assert facts["forgotten"][TELEMETRY]["published"] > 0


def test_a_silent_device_sends_nothing_any_more(lived: Lived) -> None:
    life, facts = lived("silent"), lived("silent").facts("silent")
    assert not life.truth["onAtTheEnd"]
    assert max(one["wallMs"] for one in life.lines if one["kind"] == "header") <= facts["lastWallMs"]


# --- the plan, and the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_twelve_devices_are_enough_for_every_fault_and_a_quarter_stays_healthy(seed: int) -> None:
    dealt = Plan(12, hours=48, every_hours=6, seed=seed).deal()
    assert sorted(name for names in dealt.values() for name in names) == sorted(FAULTS)
    assert sum(not names for names in dealt.values()) >= 3
    assert all(go_together(names) for names in dealt.values())
    assert dealt == Plan(12, hours=48, every_hours=6, seed=seed).deal()


def test_faults_that_hide_each_other_are_not_on_one_device() -> None:
    assert go_together(["poison", "clock-steps", "slow-consumer"])
    assert not go_together(["slow-consumer", "retry-storm"])
    assert not go_together(["silent", "poison"])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "fleet", *arguments]
    return subprocess.run(line, cwd=EXAMPLES, capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_command_makes_a_fleet_and_lists_each_device(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--devices", "2", "--days", "0.05", "--every", "1", "--faults", "duplicates", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "1/2 device-0" in done.stderr and "2/2 device-0" in done.stderr and "healthy" in done.stderr
    fleet = json.loads((out / "fleet.json").read_text())
    assert sorted(map(len, fleet["devices"].values())) == [0, 1]
    for name in fleet["devices"]:
        truth = json.loads((out / name / "truth.json").read_text())
        assert [one["name"] for one in truth["faults"]] == fleet["devices"][name]
        assert len(list((out / "snapshots" / name).glob("*.jsonl.gz"))) == len(truth["snapshots"]) == 2


def test_the_command_touches_no_existing_file_and_lists_its_faults(tmp_path: Path) -> None:
    assert "it is there already" in run("--out", str(tmp_path)).stderr
    refused = run("--out", str(tmp_path / "out"), "--faults", "gremlins")
    assert refused.returncode == 2 and "there is no fault 'gremlins'" in refused.stderr
    assert not (tmp_path / "out").exists()
