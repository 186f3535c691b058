"""What can be observed of a running daemon: its log, and the trace of a request."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroom_client import Client
from tests.daemon.journald import journal, read_fields
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, wait_until

#: Runs a program where /run holds nothing but a socket of systemd's journal, which is that of the test.
WITH_JOURNAL = """\
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && touch /run/systemd/journal/socket &&
mount --bind "$0" /run/systemd/journal/socket && exec "$@"
"""


def records(text: str) -> list[dict[str, Any]]:
    """A log's records; every line must be one."""
    return [json.loads(line) for line in text.splitlines()]


def postroom(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def disturb(daemon: Daemon, count: int) -> None:
    """Do what the daemon warns of, so many times."""
    for number in range(count):
        (daemon.requests / f"{number}.json").mkdir()
    wait_until(lambda: len(list(daemon.requests.glob(".bad-*"))) == count, "all are stepped over")


def test_a_log_that_is_not_a_terminal_has_one_json_object_a_line(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("--lease-sweep-interval-ms", "0").start()
    daemon.stop()
    reported = records(daemon.log())
    assert [one["level"] for one in reported[:2]] == ["info", "warning"]
    assert (reported[0]["message"].startswith("postroomd "), reported[-1]["message"]) == (True, "stopped")
    assert all(one["time"].endswith("Z") and one["logger"].startswith("postroom_daemon") for one in reported)


def test_the_log_also_goes_to_files_if_a_directory_is_configured(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"paths": {"logRoot": "logs"}, "log": {"format": "text"}}).start()
    daemon.restart()
    daemon.stop()
    (path,) = (daemon.root / "logs").iterdir()
    reported = [one["message"] for one in records(path.read_text())]
    assert [line.split(" ", 2)[2] for line in daemon.log().splitlines()] == reported
    assert reported.count("stopped") == 2


def test_records_logged_too_often_are_counted(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("--log-per-minute", "3").start()
    disturb(daemon, 10)
    daemon.stop()
    reported = [one for one in records(daemon.log()) if "is a directory" in one["message"]]
    assert [one.get("suppressed", 0) for one in reported] == [0, 0, 0, 6]
    assert reported[-1]["message"].endswith(" (and 6 more like it in the last minute)")


def test_a_rejected_request_is_logged_with_its_file_and_cannot_forge_a_record(daemon: Daemon) -> None:
    name = 'a"\n{"level": "critical"}.json'
    daemon.put(b"no JSON", name)
    daemon.reason(name)
    (reported,) = [one for one in records(daemon.log()) if one["level"] == "warning"]
    assert (reported["file"], reported["logger"]) == (
        name.replace("\n", "\\n"),
        "postroom_daemon.doors.mailbox.rejected",
    )


def test_under_systemd_the_log_goes_to_the_journal_with_its_fields(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    with journal(tmp_path / "journal") as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        daemon = make_daemon(wrapper=("unshare", "-rm", "sh", "-ec", WITH_JOURNAL, str(tmp_path / "journal")))
        daemon.log_path.touch()
        found = os.stat(daemon.log_path)
        daemon.environment["JOURNAL_STREAM"] = f"{found.st_dev}:{found.st_ino}"
        daemon.start()
        disturb(daemon, 1)
        daemon.stop()
        reader.setblocking(False)
        reported: list[dict[str, str]] = []
        while not reported or reported[-1]["MESSAGE"] != "stopped":
            reported.append(read_fields(reader.recv(2**20)))
    assert daemon.log() == ""
    assert {one["SYSLOG_IDENTIFIER"] for one in reported} == {"postroomd"}
    (warning,) = [one for one in reported if one["PRIORITY"] == "4"]
    assert (warning["CODE_FILE"], warning["POSTROOM_LOGGER"]) == (
        "request_files.py",
        "postroom_daemon.doors.mailbox.request_files",
    )


# --- traces ---------------------------------------------------------------------------------------------------

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def traffic(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """The lines of the traffic log by request, but for one that is being written."""
    found = [path.read_text().rpartition("\n")[0] for path in sorted((daemon.root / "traffic").iterdir())]
    return {one["request"]: one for one in records("\n".join(filter(None, found)))}


def test_a_trace_goes_from_the_request_to_its_event_and_its_traffic_line_and_through_a_restart(daemon: Daemon) -> None:
    sent = daemon.send("publish", {"queue": "q", "message": "x"}, traceparent=TRACE)
    key = daemon.answer(sent)["data"]["messageKey"]
    daemon.restart(kill=True)
    daemon.again(sent)
    (event,) = daemon.events("published")
    assert event["by"]["traceparent"] == TRACE
    daemon.wait(lambda: sent.request_id in traffic(daemon), "the traffic line is written")
    assert traffic(daemon)[sent.request_id]["traceparent"] == TRACE
    (reported,) = daemon.ask("get_message", messageKey=key, events=1)["events"]
    assert reported["by"]["traceparent"] == TRACE


def test_the_trace_of_a_published_message_is_that_of_its_request_unless_this_has_one(daemon: Daemon) -> None:
    daemon.answer(daemon.send("publish", {"queue": "q", "message": "x", "traceparent": TRACE}))
    daemon.answer(daemon.send("publish", {"queue": "q", "message": "x", "traceparent": TRACE}, traceparent=OTHER))
    assert [event["by"]["traceparent"] for event in daemon.events("published")] == [TRACE, OTHER]
    assert [daemon.consume("q")["message"]["traceparent"] for _ in range(2)] == [TRACE, TRACE]


@pytest.mark.parametrize("value", ["", None, 7, [TRACE], TRACE.upper(), TRACE + "-00", TRACE[:-1], "ff" + TRACE[2:]])
def test_an_invalid_trace_is_not_used(daemon: Daemon, value: Any) -> None:
    sent = daemon.send("publish", {"queue": "q", "message": "x"}, traceparent=value)
    assert daemon.answer(sent)["ok"]
    (event,) = daemon.events("published")
    assert "traceparent" not in event["by"]


def test_settlements_by_the_client_belong_to_the_trace_of_their_message(daemon: Daemon) -> None:
    with Client(str(daemon.ipc), client_id="press-7") as client:
        for message in ("done", "again", "bad"):
            client.publish("q", message, traceparent=TRACE)
        done, again = client.consume_next("q"), client.consume_next("q")
        assert done and again
        client.ack(done)
        client.extend_lease(again)
        client.release(again)
        with client.consume("q"):
            pass
        bad = client.consume_next("q")
        assert bad
        client.nack(bad, reason="no")
        client.call("pause", {"queue": "q"}, traceparent=OTHER)
    by = [(event["type"], event.get("by", {})) for event in daemon.events()]
    traces = {type_: who["traceparent"] for type_, who in by if "traceparent" in who}
    ended = dict.fromkeys(("published", "acked", "lease_extended", "released", "died"), TRACE)
    assert traces == ended | {"paused": OTHER}
    reported = postroom(daemon, "message", "--message-key", daemon.events("acked")[0]["key"], "--events", "3").stdout
    assert f"by press-7, trace {TRACE[3:35]}" in reported


# --- figures --------------------------------------------------------------------------------------------------


def figures(text: str) -> dict[str, float]:
    """Samples without labels by name."""
    families = text_string_to_metric_families(text)
    return {one.name: one.value for family in families for one in family.samples if not one.labels}


def test_a_file_has_the_metrics_while_the_daemon_serves_and_shows_when_it_has_stopped(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"metrics": {"file": "figures/postroom.prom", "intervalSec": 1}})
    path = daemon.root / "figures" / "postroom.prom"
    path.parent.mkdir()
    daemon.start()
    daemon.publish("q")
    daemon.wait(lambda: path.exists() and figures(path.read_text())["postroom_queues"] == 1, "the queue is told")
    assert figures(path.read_text())["postroom_up"] == 1
    daemon.stop()
    assert figures(path.read_text()) == {"postroom_up": 0}


def test_a_reload_starts_the_metrics_and_lifts_the_limit_of_the_log(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"log": {"perMinute": 1}}).start()
    path = daemon.root / "postroom.prom"
    config = {"log": {"perMinute": 0}, "metrics": {"file": "postroom.prom", "intervalSec": 1}}
    (daemon.root / "config.json").write_text(json.dumps(config))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait(path.exists, "there are figures")
    disturb(daemon, 30)
    assert len([one for one in records(daemon.log()) if "is a directory" in one["message"]]) == 30


def test_the_command_line_prints_the_metrics_unchanged(daemon: Daemon) -> None:
    daemon.publish('a "queue"\\')
    done = postroom(daemon, "metrics", "--prometheus")
    assert (done.returncode, done.stderr) == (0, "")
    assert '\npostroom_queue_bytes{queue="a \\"queue\\"\\\\"} ' in done.stdout
    assert done.stdout.endswith("\n") and not done.stdout.endswith("\n\n")
    assert figures(done.stdout)["postroom_queues"] == 1
    as_json = json.loads(postroom(daemon, "metrics", "--format", "prometheus", "--json").stdout)
    assert figures(as_json["data"]["text"])["postroom_queues"] == 1


def test_metrics_of_many_queues_block_nobody(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("--metrics-queues", "500").start()
    daemon.ask("publish_batch", messages=[{"queue": f"q{number:03d}", "message": "x"} for number in range(1000)])
    asked = daemon.send("metrics", {"format": "prometheus"})
    for _ in range(5):
        daemon.ask("health")
    reported = figures(daemon.answer(asked)["data"]["text"])
    assert (reported["postroom_queues"], reported["postroom_queues_listed"]) == (1000, 500)
