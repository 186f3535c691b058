"""Counters, percentiles, the traffic log, and what health sees."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom_common.codec import Request as WireRequest
from postroom_common.errors import CommandError
from postroom_common.protocol import Command, ErrorCode
from postroom_daemon.model.principal import Principal
from postroom_daemon.model.request import Answer, Request
from postroom_daemon.observe.traffic import TrafficLog
from postroom_daemon.platform.files import Files
from postroom_daemon.platform.histogram import Histogram
from tests.conformance.bench import Bench
from tests.daemon.reached import reached


def test_percentiles_are_right_to_a_sixteenth_and_never_too_low() -> None:
    chance = random.Random(7)
    for spread in (1, 5, 40, 1000, 10**6, 10**9):
        values = sorted(chance.randrange(spread) for _ in range(999))
        histogram = Histogram()
        for value in values:
            histogram.add(value)
        for fraction, rank in ((0.5, 499), (0.9, 899), (0.99, 989), (1.0, 998)):
            found = histogram.percentile(fraction)
            assert found is not None and values[rank] <= found <= max(values[rank] * 17 / 16, values[rank])


def test_a_histogram_of_nothing_one_and_negative_values() -> None:
    histogram = Histogram()
    assert histogram.to_wire() == {"count": 0, "mean": None, "p50": None, "p90": None, "p99": None, "max": None}
    histogram.add(-5)
    assert histogram.to_wire() == {"count": 1, "mean": 0.0, "p50": 0, "p90": 0, "p99": 0, "max": 0}
    for value in range(2**17):
        histogram.add(value * 5000)  # up to a week in milliseconds
    assert reached(histogram) < 2 * 600


def test_metrics_count_requests_by_command_outcome_and_group(bench: Bench) -> None:
    key = bench.publish()
    bench.run(*[bench.make("publish", queue="q", message="x") for _ in range(3)])
    lease = bench.do("consume_next", queue="q")["lease"]["leaseId"]
    bench.clocks.pass_ms(40)
    bench.do("ack", messageKey=key, leaseId=lease)
    bench.send("ack", messageKey=key)
    bench.send("list_dlq", queue="q")
    bench.send("publish", queue="q", priority="high")
    bench.send("nonsense")
    metrics = bench.do("metrics")
    assert metrics["requests"] == {"total": 10, "success": 7, "error": 3}
    commands = {"publish": 5, "consume": 1, "ack": 2, "nack": 0, "status": 0, "health": 0, "dlq": 1}
    assert metrics["commands"] == commands
    assert metrics["errors"] == {"parse": 1, "validation": 0, "timeout": 0, "internal": 2}
    assert metrics["errorCodes"] == {"ERR_MESSAGE_NOT_FOUND": 1, "ERR_PARSE_ERROR": 1, "ERR_UNKNOWN_COMMAND": 1}
    assert metrics["leaseToAckMs"]["count"] == 1 and metrics["leaseToAckMs"]["max"] == 40
    assert metrics["groups"]["maxRequests"] == 3
    assert metrics["rates"]["publish"] > metrics["rates"]["ack"] > 0


def test_a_disk_below_its_reserve_refuses_publishes_only(bench: Bench) -> None:
    bench.publish()
    bench.close()
    bench.config = replace(bench.config, settings=replace(bench.config.settings, storage_min_free_bytes=2**60))
    bench.open()
    assert bench.send("publish", queue="q", message="x").code == "ERR_STORAGE_FULL"
    lease = bench.do("consume_next", queue="q")["lease"]
    bench.do("ack", messageKey=lease["messageKey"], leaseId=lease["leaseId"])
    health = bench.do("health")
    assert health["status"] == "degraded" and not health["checks"]["disk"]["ok"]


def test_health_probes_store_and_journal(bench: Bench) -> None:
    assert bench.do("health")["status"] == "ok"
    bench.publish()

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    bench.files.fdatasync = broken
    checks = bench.do("health")["checks"]
    assert not checks["journal"]["ok"] and checks["store"]["ok"]


def lines(root: Path) -> list[dict[str, Any]]:
    paths = sorted(root.glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def a_request(id_: str, client: str = "worker-1", queue: str = "q", **rest: Any) -> Request:
    wire = WireRequest(id_, client, "publish", 0, {}, None, rest.pop("traceparent", ""))
    request = Request(wire, Principal(client, rest.pop("account", 7)), None, 0, print, bytes=214)
    request.command, request.queue, request.engine = Command.PUBLISH, queue, 5
    for name, value in rest.items():
        setattr(request, name, value)
    return request


def add_line(log: TrafficLog, request: Request, code: ErrorCode | None, took_ns: int, wall_ms: int) -> None:
    error = CommandError(code, "refused") if code else None
    log.add_all([(request, Answer(error=error))], request.started_ns + took_ns, wall_ms)


def add_lines(log: TrafficLog, numbers: Iterable[int], code: ErrorCode | None = None) -> None:
    for number in numbers:
        add_line(log, a_request(str(number)), code, 388_400, 1_795_811_841_655)


def ids(root: Path) -> list[int]:
    return [int(line["request"]) for line in lines(root)]


def test_the_traffic_log_has_a_bounded_number_of_files_of_bounded_size(tmp_path: Path) -> None:
    log = TrafficLog(tmp_path / "traffic", Files(), file_bytes=400, keep_files=3, sample_every=1)
    for number in range(100):
        add_lines(log, [number])
        log.flush()
    log.close()
    retained = sorted((tmp_path / "traffic").iterdir())
    assert len(retained) == 3 and all(path.stat().st_size < 600 for path in retained)
    numbers = ids(tmp_path / "traffic")
    assert numbers == list(range(numbers[0], 100))
    again = TrafficLog(tmp_path / "traffic", Files(), 200, 3, 1)
    add_lines(again, [100])
    again.close()
    assert ids(tmp_path / "traffic")[-1] == 100


def test_sampling_never_leaves_out_an_error(tmp_path: Path) -> None:
    log = TrafficLog(tmp_path / "traffic", Files(), 10**6, 3, sample_every=10)
    for number in range(100):
        add_lines(log, [number], ErrorCode.TIMEOUT if number % 25 == 0 else None)
    log.close()
    assert len(lines(tmp_path / "traffic")) == 10 + 4


def test_a_traffic_line_is_json_whatever_a_client_calls_itself_its_request_and_its_queue(tmp_path: Path) -> None:
    log = TrafficLog(tmp_path / "traffic", Files(), 10**6, 3, 1)
    odd, trace = 'a "b" \\ %d é', "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    add_line(
        log, a_request(odd, odd, "\n" * 1000, account="token:x", traceparent=trace, refusals=2), None, 1_042_999, 9
    )
    add_line(log, a_request(odd, odd, account="token:x"), ErrorCode.TIMEOUT, 999, 10)
    log.close()
    who = {"client": odd, "principal": "token:x", "command": "publish"}
    first = {"queue": "\n" * 1000, "code": "OK", "ms": 1.042, "bytes": 214, "request": odd}
    second = {"queue": "q", "code": "ERR_TIMEOUT", "ms": 0.0, "bytes": 214, "request": odd}
    further = {"traceparent": trace, "refusals": 2}
    assert lines(tmp_path / "traffic") == [
        {"wallMs": 9, "engineMs": 5, **who, **first, **further},
        {"wallMs": 10, "engineMs": 5, **who, **second},
    ]


def test_a_disk_that_accepts_no_line_loses_only_lines(tmp_path: Path) -> None:
    files = Files()
    log = TrafficLog(tmp_path / "traffic", files, 10**6, 3, 1)

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.write = full
    add_lines(log, range(3))
    log.flush()
    assert log.lost == 3
    files.write = os.write
    add_lines(log, [3])
    log.close()
    assert ids(tmp_path / "traffic") == [3]


@pytest.mark.parametrize("torn", [1, 10])
def test_a_partly_written_line_spoils_no_other_line(tmp_path: Path, torn: int) -> None:
    files = Files()
    log = TrafficLog(tmp_path / "traffic", files, 10**6, 3, 1)
    add_lines(log, [1])
    log.flush()
    writes = iter([lambda fd, data: os.write(fd, data[:torn])])

    def short(fd: int, data: bytes) -> int:
        for write in writes:
            return write(fd, data)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.write = short
    add_lines(log, [2])
    log.flush()
    files.write = os.write
    add_lines(log, [3])
    log.close()
    assert ids(tmp_path / "traffic") == [1, 3]
