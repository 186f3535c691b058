"""scripts/bench: what is measured did happen; a queue that loses or doubles a message ends the run; stages exist."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from bench.box import MEMORY_MB, NoBox, small_box
from bench.curves import Curve, Panel
from bench.plots import specification
from bench.scaling import NORMAL, body
from bench.stages import BORDERS
from bench.stores.queue import Ledger, WrongMessages
from bench.stores.worker import CHUNK, Worker
from bench.stores.workers import QueueProcess

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ("publish", "consume", "ack")


class InMemory:
    """A queue that keeps its word, unless a test takes something out of it or puts something into it."""

    def __init__(self):
        self.bodies: deque[str] = deque()

    def prepare(self, durable):
        pass

    def publish(self, bodies):
        self.bodies.extend(bodies)

    fill = publish

    def consume(self, count):
        return [(self.bodies.popleft(), None) for _ in range(count)]

    def ack(self, handles):
        pass

    def tidy(self):
        pass

    def left(self):
        return len(self.bodies)

    def versions(self):
        return {}

    def close(self):
        pass


@pytest.fixture
def queue():
    return InMemory()


@pytest.fixture
def worker(queue):
    found = Worker(queue)
    found.fill(2 * CHUNK)
    return found


def run_round(worker):
    return worker.round(group=1, durable=True, count=CHUNK, limit_s=60)


def test_every_store_of_ours_goes_through_a_contest_without_and_behind_a_backlog(tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "stores", "--tiny", "--dir", tmp_path / "data", "--json", figures]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    names = {figure["name"]: figure["value"] for figure in json.loads(figures.read_text())["figures"]}
    for store in ("sqlite", "filesystem", "hybrid"):
        for group in (1, 32):
            for where in ("no backlog, beside those behind 64", "behind a backlog of 64"):
                for operation in OPERATIONS:
                    assert names[f"{store}, groups of {group}, {where}: {operation}"] > 0
            assert names[f"{store}, groups of {group}: behind 64"] > 0
    assert list((tmp_path / "data").iterdir()) == []


def test_every_curve_of_the_scaling_has_all_its_figures_at_each_point(tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "scaling", "--tiny", "--dir", tmp_path / "data", "--json", figures]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    names = {figure["name"]: figure["value"] for figure in json.loads(figures.read_text())["figures"]}
    costs = ("groups of 32", "groups of one", "p50")
    standing = ("memory after the start", "memory", "start to READY", "start, CPU")
    for point, hows, others in (
        ("backlog 10", costs, standing),
        ("queues 1", costs, standing),
        ("queues 10", costs, standing),
        ("clients 2", ("closed loop", "p50"), ("requests a group",)),
        ("body 100", costs, ("memory",)),
    ):
        for figure in (*(f"{operation}, {how}" for operation in OPERATIONS for how in hows), *others):
            assert names[f"{point}: {figure}"] > 0
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("count", NORMAL.bodies)
def test_a_body_of_the_scaling_is_json_of_its_size(count):
    text = body(count)
    assert len(text) == count
    assert isinstance(json.loads(text), list)


def test_a_plot_has_a_panel_with_the_points_of_each_line_and_the_budget():
    panels = [
        Panel("CPU", "us", {"publish": "publish", "ack": "ack"}, 250),
        Panel("Requests a group", "", {"most": "most"}),
    ]
    curve = Curve("backlog", "Messages", panels, {1: {"publish": 2.0, "ack": 1.0}, 100: {"publish": 3.0, "most": 9.0}})
    cpu, requests = specification(curve)["concat"]
    assert [(value["line"], value["x"], value["y"]) for value in cpu["layer"][0]["data"]["values"]] == [
        ("publish", 1, 2.0),
        ("ack", 1, 1.0),
        ("publish", 100, 3.0),
    ]
    assert cpu["layer"][1]["encoding"]["y"] == {"datum": 250}
    assert [value["y"] for value in requests["layer"][0]["data"]["values"]] == [9.0]
    assert len(requests["layer"]) == 1


def test_a_process_in_the_small_box_gets_no_more_memory_than_it_has():
    """Where no box can be made, the reason is given instead."""
    fill = f"bytearray({2 * MEMORY_MB} << 20)"
    try:
        with small_box() as box:
            done = subprocess.run(
                [*box.prefix, sys.executable, "-c", fill], preexec_fn=box.enter, stderr=subprocess.PIPE, timeout=60
            )
    except NoBox as reason:
        assert str(reason)
    else:
        assert done.returncode != 0


def test_a_round_leaves_the_backlog_as_it_was(worker, queue):
    outcome = run_round(worker)
    assert outcome["count"] == CHUNK
    assert len(queue.bodies) == 2 * CHUNK
    assert worker.check() == {"left": 2 * CHUNK}


def test_a_message_that_is_delivered_twice_ends_the_run(worker, queue):
    queue.bodies.insert(1, queue.bodies[0])
    with pytest.raises(WrongMessages, match="twice"):
        run_round(worker)


def test_a_message_that_is_lost_ends_the_run(worker, queue):
    run_round(worker)
    queue.bodies.pop()
    with pytest.raises(WrongMessages, match="has 63 messages and should have 64"):
        worker.check()


def test_a_message_that_is_changed_ends_the_run(worker, queue):
    queue.bodies[0] = queue.bodies[0][:-1]
    with pytest.raises(WrongMessages, match="not what was published"):
        run_round(worker)


def test_a_message_that_was_never_published_ends_the_run():
    ledger, other = Ledger(), Ledger()
    with pytest.raises(WrongMessages, match="not what was published"):
        ledger.settle(list(other.make(1)))


def test_an_error_in_a_queues_process_is_reported(tmp_path):
    process = QueueProcess(Path(sys.executable), "sqlite", tmp_path / "sqlite")
    try:
        with pytest.raises(RuntimeError, match="our stores are measured durable"):
            process.ask("round", group=1, durable=False, count=CHUNK, limit_s=60)
        assert process.ask("check") == {"left": 0}
    finally:
        process.close()


def test_the_stages_have_their_cpu_calls_and_system_calls(tmp_path):
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "stages", "--tiny", "--dir", tmp_path / "data", "--json", figures]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    names = {figure["name"]: figure["value"] for figure in json.loads(figures.read_text())["figures"]}
    for group in (32, 1):
        for operation in OPERATIONS:
            of = f"{operation}, {group}"
            stages = [names[f"{of}: {stage}"] for stage in dict.fromkeys(stage for _, _, stage in BORDERS)]
            assert 0 < sum(stages) <= 3 * names[f"{of}: all"]
            assert names[f"{of}: calls of Python functions"] > 10
            if "not measured" not in done.stdout:
                assert names[f"{of}: system calls, fdatasync"] >= 1 / group
                assert names[f"{of}: system calls, all"] > names[f"least, {group}: system calls, all"]
    assert list((tmp_path / "data").iterdir()) == []


def test_the_stages_that_are_timed_are_functions_of_the_daemon():
    assert [f"{owner.__name__}.{name}" for owner, name, _ in BORDERS if not callable(getattr(owner, name, None))] == []
