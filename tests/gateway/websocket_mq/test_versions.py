"""Ranges of versions, compared with what npm's ``semver`` says of them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

from postroom_gateway.dialects.websocket_mq.versions import satisfies

_SEMVER = Path(sys.prefix) / "share" / "delight-rpc" / "node_modules" / "semver"
_PROGRAM = """
const { satisfies } = require(process.argv[1])
const ranges = JSON.parse(require('fs').readFileSync(0, 'utf8'))
console.log(JSON.stringify(ranges.map(range => satisfies('0.7.4', range))))
"""
_PARTS = ("0", "0", "7", "4", "x", "*", "1", "3", "5", "8", "X", "04")
_OPERATORS = ("", "^", "~", ">=", "<=", ">", "<", "=", "~>", " ", "v", "=v", ">= ", "^ ", "<>", "!")
_ENDS = ("", "", "", "", "-beta", "-0", "+b", "-a.1", ".1", "-", "-é")
_ODD = ("", "||", "latest", "^0.7.0 ||", " ^0.7.0 ", "0.7.0 - 0.7", ">=0.7.0, <0.8.0", "9" * 20, "^0.7.0 foo", "*-1")


def test_ranges_mean_what_they_mean_for_npm():
    chance = random.Random(7)
    ranges = [*_ODD, *(_range(chance) for _ in range(10_000))]
    node = shutil.which("node", path=f"{sys.prefix}/bin") or shutil.which("node")
    assert node, "there is no node: run scripts/setup"
    done = subprocess.run(
        [node, "-e", _PROGRAM, _SEMVER], input=json.dumps(ranges), capture_output=True, text=True, check=True
    )
    assert [one for one, expected in zip(ranges, json.loads(done.stdout), strict=True)
            if satisfies("0.7.4", one) is not expected] == []  # fmt: skip


def test_a_range_of_any_length_costs_little_and_is_not_remembered():
    assert not satisfies("0.7.4", "^0.7.0 " * 1000)
    tracemalloc.start()
    try:
        assert not any(satisfies("0.7.4", f"{number} " * 2**19) for number in range(10, 30))
        assert tracemalloc.get_traced_memory()[0] < 2**20
    finally:
        tracemalloc.stop()


def _range(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.5:
        return _comparator(chance)
    if kind < 0.7:
        return f"{_comparator(chance)} {_comparator(chance)}"
    if kind < 0.8:
        return f"{_version(chance)} - {_version(chance)}"
    return f"{_comparator(chance)}{chance.choice(('||', ' || ', '|| '))}{_comparator(chance)}"


def _comparator(chance: random.Random) -> str:
    return chance.choice(_OPERATORS) + _version(chance)


def _version(chance: random.Random) -> str:
    parts = [chance.choice(_PARTS) for _ in range(chance.randint(1, 3))]
    return ".".join(parts) + (chance.choice(_ENDS) if len(parts) == 3 else "")
