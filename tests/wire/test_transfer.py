"""postroomd export and import, beside daemons that work on."""

from __future__ import annotations

import json
import threading
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import encode_line
from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Fields


def lines(exported: bytes) -> list[Fields]:
    return [json.loads(line) for line in exported.splitlines()]


@on_every_store
def test_messages_exported_by_a_running_daemon_are_imported_and_delivered_by_another(make_daemon: MakeDaemon) -> None:
    source, target = make_daemon().start(), make_daemon().start()
    keys = [source.publish("jobs", f"body {number}", priority=number % 2) for number in range(20)]
    source.settle("nack", source.consume("jobs"), reason="jammed")
    source.publish("later", "x", delayMs=3_600_000)
    source.ask("set_policy", queue="jobs", policy={"retry": {"limit": 9}})
    stop = threading.Event()
    busy = threading.Thread(target=lambda: [source.publish("busy", "x") for _ in iter(stop.is_set, True)])
    busy.start()
    try:
        exported = source.tool("export")
    finally:
        stop.set()
        busy.join()
    assert exported.returncode == 0, exported.stderr
    done = target.tool("import", "--json", data=exported.stdout)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == len(lines(exported.stdout)) - 2 - 3
    assert target.counts("jobs") == source.counts("jobs")
    assert target.counts("later")["delayed"] == 1
    assert target.ask("get_policy", queue="jobs")["policy"]["retry"]["limit"] == 9
    (letter,) = target.ask("list_dlq", queue="jobs")["messages"]
    assert (letter["reason"], letter["attempt"]) == ("jammed", 1)
    order = [source.consume("jobs")["message"]["messageKey"] for _ in range(19)]
    assert [target.consume("jobs")["message"]["messageKey"] for _ in range(19)] == order
    assert set(order) | {letter["messageKey"]} == set(keys)


def test_a_stopped_root_is_exported_and_imported_too(make_daemon: MakeDaemon, tmp_path: Path) -> None:
    source, other = make_daemon().start(), make_daemon()
    for number in range(5):
        source.publish(f"queue{number % 2}", f"body {number}")
    source.stop()
    file = tmp_path / "all.jsonl"
    assert source.tool("export", "--to", file).returncode == 0
    assert source.tool("export", "--to", file).returncode == 1  # it is there already
    done = other.tool("import", file)
    assert done.stdout == b"imported 5 messages and 2 queues; 0 existed already\n"
    again = other.tool("import", file)
    assert again.stdout == b"imported 0 messages and 0 queues; 7 existed already\n"
    one = other.tool("export", "--queue", "queue1")
    assert [line["queue"] for line in lines(one.stdout) if line["kind"] == "message"] == ["queue1", "queue1"]
    none = other.tool("export", "--queue", "nobody")
    assert (none.returncode, b"there is no queue 'nobody'" in none.stderr) == (1, True)


@pytest.mark.parametrize("cut", [0, 100, -3])
def test_an_incomplete_file_changes_nothing(make_daemon: MakeDaemon, cut: int) -> None:
    daemon, other = make_daemon().start(), make_daemon()
    daemon.publish("q")
    exported = daemon.tool("export").stdout
    done = other.tool("import", data=exported[:cut])
    assert done.returncode == 1
    assert b"standard input, line " in done.stderr
    assert not (other.root / "journal").exists()


def test_used_keys_and_schedules_are_exported_and_the_drain_with_the_whole_root(
    make_daemon: MakeDaemon,
) -> None:
    source, target, part = make_daemon().start(), make_daemon().start(), make_daemon()
    source.ask("set_policy", queue="once", policy={"deduplication": {"mode": "window", "windowSec": 3600}})
    first = source.ask("publish", queue="once", deduplicationKey="k")
    source.settle("ack", source.consume("once"))
    source.publish("other")
    for queue in ("once", "other"):
        source.ask("set_schedule", name=queue, queue=queue, cron="0 5 * * *")
    source.ask("drain", draining=True)
    done = target.tool("import", data=source.tool("export").stdout)
    assert b"4 schedules, deduplication keys" in done.stdout and b"--no-draining" in done.stdout, done.stderr
    assert target.ask("list_schedules")["schedules"] == source.ask("list_schedules")["schedules"]
    assert target.refusal("publish", queue="once") == "ERR_DRAINING"
    target.ask("drain", draining=False)
    target.restart(kill=True)
    assert target.ask("publish", queue="once", deduplicationKey="k") == first | {"duplicate": True}
    done = part.tool("import", "--json", data=source.tool("export", "--queue", "once").stdout)
    assert json.loads(done.stdout)["facts"] == 2, done.stderr
    part.start()
    assert [one["name"] for one in part.ask("list_schedules")["schedules"]] == ["once"]
    assert part.ask("publish", queue="once", deduplicationKey="k") == first | {"duplicate": True}


def test_an_older_export_without_facts_is_imported(make_daemon: MakeDaemon) -> None:
    source, target = make_daemon().start(), make_daemon()
    source.publish("q", "old")
    source.ask("set_schedule", name="s", queue="q", cron="0 5 * * *")
    older = [line for line in lines(source.tool("export").stdout) if line["kind"] != "fact"]
    older[0] |= {"format": 1}
    done = target.tool("import", data=sealed(older))
    assert done.stdout == b"imported 1 message and 1 queue; 0 existed already\n", done.stderr
    newer = [older[0] | {"format": 99}, *older[1:]]
    assert b"upgrade" in target.tool("import", data=sealed(newer)).stderr


def test_one_invalid_fact_stops_the_import_of_the_whole_file(make_daemon: MakeDaemon) -> None:
    source, target = make_daemon().start(), make_daemon().start()
    source.publish("q", "x")
    source.ask("set_schedule", name="s", queue="q", cron="0 5 * * *")
    exported = lines(source.tool("export").stdout)
    place = next(number for number, line in enumerate(exported) if line["kind"] == "fact")
    exported[place]["value"]["cron"] = "when it pleases"
    done = target.tool("import", data=sealed(exported))
    assert done.returncode == 1 and b"fact 'schedule:s': cron" in done.stderr, done.stderr
    assert b"nothing was imported" in done.stderr
    assert target.ask("list_queues")["queues"] == []


CHANGES = {
    "a state that there is not": lambda line: line | {"state": "lost"},
    "no key": lambda line: {name: value for name, value in line.items() if name != "key"},
    "no body": lambda line: line | {"message": 7},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_one_invalid_line_stops_the_import_of_the_whole_file(make_daemon: MakeDaemon, change) -> None:
    daemon, target = make_daemon().start(), make_daemon().start()
    for number in range(3):
        daemon.publish("q", number)
    exported = lines(daemon.tool("export").stdout)
    exported[-2] = change(exported[-2])
    done = target.tool("import", data=sealed(exported))
    assert done.returncode == 1 and b"standard input, line 5: " in done.stderr, done.stderr
    assert b"nothing was imported" in done.stderr
    assert target.ask("list_queues")["queues"] == []


def sealed(edited: list[dict[str, Any]]) -> bytes:
    """Lines with the checksums and the digest that belong to them: as one who edits a file with a program writes."""
    data = b""
    for line in edited:
        fields = {name: value for name, value in line.items() if name != "crc"}
        if line["kind"] == "end":
            fields["digest"] = blake2b(data, digest_size=32).hexdigest()
        data += encode_line(fields)
    return data


def test_a_message_that_is_too_large_for_a_request_is_named_before_anything_is_imported(
    make_daemon: MakeDaemon,
) -> None:
    source, target = make_daemon().start(), make_daemon(config={"limits": {"requestBytes": 4096}}).start()
    source.publish("q", "small")
    key = source.publish("q", "x" * 5000)
    exported = source.tool("export").stdout
    done = target.tool("import", data=exported)
    assert done.returncode == 1 and f"message {key!r} takes 5".encode() in done.stderr, done.stderr
    assert b"stop the daemon and import again" in done.stderr
    assert target.ask("list_queues")["queues"] == []
    target.stop()
    assert target.tool("import", data=exported).returncode == 0


def test_an_import_refused_halfway_says_what_it_has_done_and_a_second_run_continues(
    make_daemon: MakeDaemon,
) -> None:
    """A message whose line just fits, and whose request does not, is the one that only the mailbox refuses."""
    limits = {"limits": {"requestBytes": 4096}}
    source, target = make_daemon().start(), make_daemon(config=limits).start()
    for number in range(20):
        source.publish("q", f"{number:0400d}")
    room = 4096 - len(source.tool("export").stdout.splitlines()[-2]) + 380
    source.publish("q", "x" * room)
    source.publish("q", "last")
    exported = source.tool("export").stdout
    done = target.tool("import", data=exported)
    assert done.returncode == 1, done.stdout
    assert b"Before that 1 queues and 20 messages were imported" in done.stderr, done.stderr
    target.stop()
    again = target.tool("import", data=exported)
    assert again.stdout == b"imported 2 messages and 0 queues; 21 existed already\n", again.stderr


def test_an_unused_root_is_not_exported(make_daemon: MakeDaemon) -> None:
    mistyped = make_daemon()
    mistyped.root.mkdir()
    done = mistyped.tool("export")
    assert (done.returncode, b"there is no journal" in done.stderr) == (1, True)
    assert not list(mistyped.root.iterdir())


def test_every_publishable_message_can_be_imported_into_a_running_root(make_daemon: MakeDaemon) -> None:
    large = {"limits": {"requestBytes": 8 * 1024 * 1024}}
    source, target = make_daemon(config=large), make_daemon(config=large).start()
    source.start().publish("q", "x" * (5 * 1024 * 1024))
    done = target.tool("import", data=source.tool("export").stdout)
    assert done.stdout == b"imported 1 message and 1 queue; 0 existed already\n", done.stderr
