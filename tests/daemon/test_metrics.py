"""The figures of the daemon as Prometheus reads them: by its own parser."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroom_common.exposition import Exposition, Metric
from postroom_common.protocol import State
from postroom_daemon.config.config import load
from postroom_daemon.maintenance.local import LocalRoot
from postroom_daemon.observe.counters import RATE_SECONDS, Counters
from postroom_daemon.observe.metrics.collect import stopped
from postroom_daemon.observe.metrics.table import METRICS
from postroom_daemon.observe.metrics.textfile import MetricsFile
from postroom_daemon.platform.histogram import Doublings
from postroom_daemon.stores.errors import StoreError
from tests.conformance.bench import Bench

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
HOSTILE = ['a"b\\c', "{}=,", "ü 邮", " ", "le", "\\n", "#", "x" * 256]


def read(text: str) -> Samples:
    """Samples by name and labels, none of them twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            key = (one.name, frozenset(one.labels.items()))
            assert key not in found, key
            found[key] = one.value
    return found


def figures(bench: Bench) -> Samples:
    """All metrics of a daemon on an open root."""
    assert bench.root
    text: str = LocalRoot(bench.root).call("metrics", {"format": "prometheus"})["text"]
    return read(text)


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"postroom_{name}", frozenset(labels.items())]


# --- the format -------------------------------------------------------------------------------------------------


def test_label_values_are_read_back_unchanged():
    out = Exposition()
    metric = Metric("m", "gauge", 'help with \\ and\n"newline"', ("a", "b"))
    values = [*HOSTILE, "\n", ""]
    for number, label in enumerate(values):
        out.add(metric, number, label, "b")
    (family,) = text_string_to_metric_families(out.text())
    assert [(one.labels["a"], one.value) for one in family.samples] == list(zip(values, range(10), strict=True))
    assert family.documentation == 'help with \\ and\n"newline"'


def test_numbers_keep_their_value():
    out = Exposition()
    metric = Metric("m", "gauge", "-", ("l",))
    values: list[float] = [0, -1, 2**53, 0.1, 1e-9, 1795811841.655, math.inf, True]
    for number, one in enumerate(values):
        out.add(metric, one, str(number))
    assert list(read(out.text()).values()) == values


def test_a_histogram_bucket_counts_values_up_to_its_bound():
    found = Doublings(1, 3)
    for number in (1, 2, 3, 4, 5, 8, 9, 10**6):
        found.add(number)
    out = Exposition()
    out.histogram(Metric("m", "histogram", "-"), found, 0.5)
    samples = read(out.text())
    buckets = [(dict(labels)["le"], count) for (name, labels), count in samples.items() if name == "m_bucket"]
    assert buckets == [("1", 2), ("2", 4), ("4", 6), ("+Inf", 8)]
    assert (samples["m_sum", frozenset()], samples["m_count", frozenset()]) == ((32 + 10**6) / 2, 8)


def test_all_names_follow_the_conventions():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("postroom_") and metric.name.replace("_", "").isalnum()
        assert metric.name.endswith("_total") == (metric.type == "counter"), metric.name
        assert "_ms" not in metric.name and metric.help.endswith("."), metric.name


# --- what is told -----------------------------------------------------------------------------------------------


def test_every_metric_of_the_table_is_written_and_no_other(make_bench: Any) -> None:
    bench = make_bench()
    bench.publish()
    bench.do("nack", messageKey=bench.do("consume_next", queue="q")["message"]["messageKey"], consumerId="client")
    bench.do("append", queue="log", message="x", createWith={})
    bench.do("move_reader", queue="log", reader="r", position=0)
    bench.live.vitals.doors["cluster"] = lambda: {"leads": 1, "epoch": 2, "pending": 0, "groups": 3}
    reported = {name for name, _ in figures(bench)}
    bare = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in reported}
    assert bare == {metric.name for metric in METRICS}


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Any]:
    made: list[Bench] = []

    def make(backend: str = "sqlite", **flags: Any) -> Bench:
        made.append(Bench(tmp_path / f"root{len(made)}", backend, **flags).open())
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def test_promtool_has_nothing_against_the_text_where_it_is_installed(make_bench: Any) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        return  # the parser above has read it; this is about what else a good text has
    bench = make_bench()
    for name in HOSTILE:
        bench.do("publish", queue=name, message="x")
    text = LocalRoot(bench.live).call("metrics", {"format": "prometheus"})["text"]
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("backend", ["sqlite", "filesystem", "hybrid", "memory"])
def test_queues_have_metrics_of_backlog_ages_pauses_and_events(make_bench: Any, backend: str) -> None:
    bench = make_bench(backend)
    bench.publish()
    bench.clocks.pass_ms(2000)
    for state in ("ready", "dead", "inflight"):
        bench.publish()
        bench.clocks.pass_ms(1000)
        if state == "dead":
            delivery = bench.do("consume_next", queue="q")
            bench.do("nack", messageKey=delivery["message"]["messageKey"], leaseId=delivery["lease"]["leaseId"])
    bench.do("publish", queue="q", message="x", delayMs=60_000)
    bench.do("consume_next", queue="q")
    bench.do("pause", queue="q")
    bench.clocks.pass_ms(500)
    samples = figures(bench)
    counts = dict.fromkeys(State, 0.0) | {"ready": 2.0, "inflight": 1.0, "delayed": 1.0, "dead": 1.0}
    assert {state.value: value(samples, "queue_messages", queue="q", state=state.value) for state in State} == counts
    assert {state.value: value(samples, "messages", state=state.value) for state in State} == counts
    assert value(samples, "queue_oldest_ready_age_seconds", queue="q") == 2.5
    assert value(samples, "oldest_ready_age_seconds") == 2.5
    assert value(samples, "queue_oldest_lease_age_seconds", queue="q") == 0.5
    assert value(samples, "queue_oldest_dead_letter_age_seconds", queue="q") == 1.5
    assert value(samples, "queue_dead_letters", queue="q", reason="REJECTED") == 1
    assert value(samples, "queue_paused", queue="q", operation="consume") == 1
    assert value(samples, "queue_paused", queue="q", operation="publish") == 0
    assert value(samples, "queue_events_total", queue="q", type="published") == 5
    assert value(samples, "events_total", type="leased") == 2


def test_requests_errors_groups_and_syncs_are_counted(make_bench: Any) -> None:
    bench = make_bench()
    bench.run(*[bench.make("publish", queue="q", message="x") for _ in range(3)])
    bench.send("ack", messageKey="msg:q:none")
    samples = figures(bench)
    assert value(samples, "requests_total", command="publish") == 3
    assert value(samples, "request_errors_total", code="ERR_MESSAGE_NOT_FOUND") == 1
    assert value(samples, "request_duration_seconds_count") == 4
    assert value(samples, "request_age_seconds_count") == 4
    assert value(samples, "group_requests_bucket", le="2") == value(samples, "group_requests_count") - 1
    assert value(samples, "group_requests_sum") == 5
    assert value(samples, "journal_sync_duration_seconds_count") >= 1
    assert value(samples, "journal_last_event") > value(samples, "journal_lag_events") > 0
    assert value(samples, "journal_unfolded_events") == 0


def test_a_bounded_number_of_queues_has_own_metrics_and_all_are_in_the_sums(make_bench: Any) -> None:
    bench = make_bench(**{"metrics.queues": "3"})
    for name in HOSTILE:
        bench.do("publish", queue=name, message="x")
        bench.clocks.pass_ms(1)
    samples = figures(bench)
    assert listed(samples) == set(HOSTILE[:3])
    assert (value(samples, "queues"), value(samples, "queues_listed"), value(samples, "queues_complete")) == (8, 3, 1)
    assert value(samples, "messages", state="ready") == 8


def listed(samples: Samples) -> set[str]:
    """The queues that have figures of their own."""
    return {dict(labels)["queue"] for name, labels in samples if name == "postroom_queue_bytes"}


def test_no_later_queue_replaces_another(make_bench: Any) -> None:
    bench = make_bench(**{"metrics.queues": "2"})
    for name in ("old-b", "old-a", "!new", "0-new"):
        bench.do("publish", queue=name, message="x")
        bench.clocks.pass_ms(1)
    assert listed(figures(bench)) == {"old-a", "old-b"}
    bench.do("purge", queue="old-b")
    bench.do("delete_queue", queue="old-b")
    assert listed(figures(bench)) == {"old-a", "!new"}


def test_a_failed_read_of_the_store_is_an_error_of_that_request_only(make_bench: Any) -> None:
    bench = make_bench()
    bench.publish()
    store, known = bench.live.store, bench.live.store.pages.queue_names

    def broken(after: str, limit: int) -> list[str]:
        raise StoreError("the disk")

    store.pages.queue_names = broken
    assert bench.send("metrics", format="prometheus").code == "ERR_STORAGE_FAILED"
    store.pages.queue_names = known
    bench.publish()
    assert value(figures(bench), "messages", state="ready") == 2


def test_many_queues_are_collected_in_steps_between_other_requests(make_bench: Any) -> None:
    bench = make_bench()
    messages = [{"queue": f"q{number:03d}", "message": "x"} for number in range(120)]
    bench.do("publish_batch", messages=messages)
    asked = bench.make("metrics", format="prometheus")
    assert bench.root
    bench.root.broker.submit(asked.request)
    bench.root.broker.run_group()
    meanwhile = 0
    while not asked.answers:
        other = bench.make("publish", queue="q000", message="meanwhile")
        bench.root.broker.submit(other.request)
        bench.root.broker.run_group()
        meanwhile += other.code == "OK"
    assert meanwhile >= 3
    assert value(read(asked.data["text"]), "queues") == 120


def test_another_format_is_refused(make_bench: Any) -> None:
    assert make_bench().send("metrics", format="xml").code == "ERR_INVALID_REQUEST"


def test_quarantined_and_lost_data_is_counted(make_bench: Any) -> None:
    bench = make_bench()
    assert bench.root
    quarantine = bench.config.quarantine_root
    quarantine.mkdir()
    (quarantine / "torn").write_bytes(b"x" * 10)
    bench.root.vitals.count_unanswered("JSON parse error: of a test")
    samples = figures(bench)
    assert (value(samples, "quarantine_files"), value(samples, "quarantine_bytes")) == (1, 10)
    assert value(samples, "request_errors_total", code="ERR_PARSE_ERROR") == 1
    assert value(samples, "lost_events") == 0


def test_the_age_of_a_request_includes_its_wait_but_no_long_poll_and_no_step_of_the_clock(make_bench: Any) -> None:
    bench = make_bench()
    slow, poll, early = (bench.make("consume_next", queue="q", waitMs=wait) for wait in (0, 1000, 0))
    slow.request.arrived_wall -= 3000
    early.request.arrived_wall += 10**9
    bench.run(slow, poll, early)
    bench.clocks.pass_ms(2000)
    bench.run()
    assert all(one.answers for one in (slow, poll, early))
    samples = figures(bench)
    assert value(samples, "request_age_seconds_count") == 1
    assert value(samples, "request_age_seconds_sum") == 3


def test_counted_events_stay_counted_when_the_minute_is_over():
    counters = Counters()
    for second in range(3 * RATE_SECONDS):
        counters.count_group(1, [{"type": "published"}], second * 1000)
    assert counters.events() == {"published": 3 * RATE_SECONDS}
    assert counters.recent_events((3 * RATE_SECONDS - 1) * 1000) == {"published": RATE_SECONDS}


# --- the file ---------------------------------------------------------------------------------------------------


def steps(*texts: str) -> Any:
    """Collects of several steps, one text after the other."""
    left = list(texts)

    def collect() -> Any:
        yield
        return left.pop(0)

    return collect


def written(path: Path, collect: Any) -> MetricsFile:
    """A file that is written every minute."""
    flags = {"metrics.file": str(path), "metrics.intervalSec": "60"}
    return MetricsFile(load(path.parent, None, {}, flags).settings, collect)


def do_all(file: MetricsFile) -> None:
    while file.busy:
        file.step()


def test_the_file_is_written_on_time_and_readable_by_everybody(tmp_path):
    path = tmp_path / "postroom.prom"
    file = written(path, steps("first\n", "second\n"))
    file.tick(1000.0)
    assert not path.exists()
    do_all(file)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("first\n", 0o644)
    file.tick(1059.0)
    assert not file.busy
    file.tick(1060.0)
    file.tick(1061.0)
    do_all(file)
    assert path.read_text() == "second\n"
    assert [one.name for one in tmp_path.iterdir()] == ["postroom.prom"]


def test_an_unwritable_file_is_reported_and_retried(tmp_path, caplog):
    path = tmp_path / "gone" / "postroom.prom"
    file = written(path, steps("first\n", "second\n"))
    file.tick(0.0)
    do_all(file)
    assert "metrics: " in caplog.text
    path.parent.mkdir()
    file.tick(60.0)
    do_all(file)
    assert path.read_text() == "second\n"


def test_metrics_that_the_disk_cannot_read_are_reported_and_collected_again(tmp_path, caplog):
    def broken() -> Any:
        yield
        raise OSError("the disk")

    file = written(tmp_path / "postroom.prom", broken)
    file.tick(0.0)
    do_all(file)
    assert "metrics: the disk" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_nothing_is_collected(tmp_path):
    file = MetricsFile(load(tmp_path, None, {}, {}).settings, steps())
    file.tick(0.0)
    file.step()
    file.stop()
    assert (file.busy, list(tmp_path.iterdir())) == (False, [])


def test_a_reload_starts_moves_and_ends_the_file(tmp_path):
    def settings(path: str) -> Any:
        return load(tmp_path, None, {}, {"metrics.file": path}).settings

    file = MetricsFile(settings(""), steps("first\n", "second\n"))
    for path, text in (("a.prom", "first\n"), ("b.prom", "second\n")):
        file.reload(settings(path))
        file.tick(1.0)
        do_all(file)
        assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(path, text)]
    file.reload(settings(""))
    file.tick(1000.0)
    assert (file.busy, list(tmp_path.iterdir())) == (False, [])


def test_an_orderly_stop_is_shown_in_the_file(tmp_path):
    path = tmp_path / "postroom.prom"
    file = written(path, steps("first\n"))
    file.tick(0.0)
    file.stop()
    assert not file.busy
    assert path.read_text() == stopped()
    assert read(path.read_text()) == {("postroom_up", frozenset()): 0}
