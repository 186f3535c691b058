"""docs/features.md: every command that it shows is run unchanged, and every test that it names exists."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from postroom_common.policy_keys import POLICY_KEYS
from tests.wire.daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
#: How many features the document had when this was written: a table that is not found must not pass for an empty one.
AT_LEAST = 30


def tables() -> list[list[list[str]]]:
    """The tables of the document: rows of cells, without their heads."""
    found: list[list[list[str]]] = []
    text = (ROOT / "docs/features.md").read_text("utf-8")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append(rows[2:])
    return found


FEATURES, TESTS, COMPARED = tables()


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all rows: each has a queue of its own."""
    daemon = Daemon(tmp_path_factory.mktemp("features") / "root").start()
    yield daemon
    daemon.kill()
    print(daemon.log())


NUMBERS = itertools.count(1)


@pytest.fixture
def queue(served: Daemon) -> str:
    """A queue with one message that is ready."""
    name = f"jobs-{next(NUMBERS)}"
    served.publish(name, "there already")
    return name


def stands_for(daemon: Daemon, queue: str) -> dict[str, str]:
    """What the words of a command mean: a message in each state, all of ``queue``."""
    ready = daemon.publish(queue, "ready", priority=-1)
    daemon.publish(queue, "to die", priority=9)
    dying = daemon.consume(queue)
    daemon.settle("nack", dying)
    daemon.publish(queue, "to be worked on", priority=9)
    leased = daemon.consume(queue)
    lease = leased["lease"]
    return {
        "READY": ready,
        "LEASED": lease["messageKey"],
        "LEASE": lease["leaseId"],
        "DEAD": dying["lease"]["messageKey"],
    }


@pytest.mark.parametrize("row", FEATURES, ids=[row[0] for row in FEATURES])
def test_the_command_of_a_feature_works_unchanged(served: Daemon, queue: str, row: list[str]) -> None:
    (command,) = code(row[1])
    program, *words = shlex.split(command)
    assert program == "postroom"
    meant = {"jobs": queue, "jobs.dlq": f"{queue}.dlq", "LEASED": "", "LEASE": "", "READY": "", "DEAD": ""}
    if set(words) & (set(meant) - {"jobs"}):
        meant |= stands_for(served, queue)
    words = [meant.get(word, word) for word in words]
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(served.ipc), *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), command
    assert done.stdout.strip()
    if words[0] == "drain":
        served.ask("drain", draining=False)


@pytest.mark.parametrize("row", TESTS, ids=[row[0] for row in TESTS])
def test_the_test_of_a_feature_exists(row: list[str]) -> None:
    (named,) = code(row[1])
    path, _, name = named.partition("::")
    assert name in names_in(ROOT / path)


def test_a_policy_that_a_command_sets_is_one_of_the_keys_beside_it() -> None:
    for row in FEATURES:
        words = shlex.split(code(row[1])[0])
        if "--policy" in words:
            tree = json.loads(words[words.index("--policy") + 1])
            leaves = {
                f"{group}.{name}" if isinstance(below, dict) else group
                for group, below in tree.items()
                for name in (below if isinstance(below, dict) else [group])
            }
            assert leaves <= set(code(row[2])), row[0]


def test_every_policy_key_belongs_to_a_feature() -> None:
    named = {key for row in FEATURES for key in code(row[2])}
    assert {key.key for key in POLICY_KEYS} == named


def test_all_tables_are_about_the_same_features() -> None:
    assert [row[0] for row in FEATURES] == [row[0] for row in TESTS] == [row[0] for row in COMPARED]
    assert len({row[0] for row in FEATURES}) == len(FEATURES) >= AT_LEAST
    assert {len(row) for row in FEATURES} == {3}
    assert {len(row) for row in TESTS} == {2}
    assert {len(row) for row in COMPARED} == {8}
    assert all(cell for row in FEATURES + TESTS + COMPARED for cell in row)
