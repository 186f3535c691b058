"""The documents of the wire and of the journal say what is so: their tables, examples and scripts are run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom_common.events import JOURNAL_FORMAT, EventType
from postroom_common.protocol import Command, ErrorCode, ReasonCode
from tests.wire.daemon import Daemon, Sent

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PROTOCOL = (REPOSITORY / "docs" / "protocol.md").read_text("utf-8")
JOURNAL = (REPOSITORY / "docs" / "journal.md").read_text("utf-8")
CONFIGURATION = (REPOSITORY / "docs" / "configuration.md").read_text("utf-8")
CONVERSATIONS = json.loads((REPOSITORY / "tests" / "vectors" / "v1" / "conversations.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all that the documents show."""
    daemon = Daemon(tmp_path_factory.mktemp("documents") / "root").start()
    try:
        yield daemon
    finally:
        daemon.kill()
        print(daemon.log())


def scripts_of(text: str) -> list[str]:
    """The shell blocks of a document."""
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """All lines, but for one that is being written."""
    return [json.loads(line) for path in directory.glob("*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from keys_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item)


def paths_of(policy: dict[str, Any], above: str = "") -> Iterator[str]:
    """The dotted paths of the keys of a policy, or of what explains one."""
    for key, value in policy.items():
        if isinstance(value, dict) and "layer" not in value and key != "schema":
            yield from paths_of(value, f"{above}{key}.")
        else:
            yield above + key


def test_generated_tables_and_examples_are_fresh() -> None:
    check = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts" / "generate-protocol-tables"), "--check"],
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("command", Command)
def test_every_command_has_a_section_with_fields_and_example(command: Command) -> None:
    section = PROTOCOL.split(f"\n### {command}\n")[1].split("\n### ")[0]
    assert f"fields {command} -->" in section
    assert f"example {command} -->" in section


@pytest.mark.parametrize("word", [*ErrorCode, *ReasonCode])
def test_every_code_is_explained(word: str) -> None:
    assert f"`{word}`" in PROTOCOL


@pytest.mark.parametrize("type_", EventType)
def test_every_event_type_is_explained(type_: EventType) -> None:
    assert f"`{type_}`" in JOURNAL


@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk["name"])
def test_every_field_of_a_reply_is_named(talk: dict[str, Any], daemon: Daemon) -> None:
    for step in talk["steps"]:
        request = json.loads(step["request"]["text"])
        if step.get("again") or "messageKey" in request["payload"]:
            continue
        sent = Sent(daemon.new_name(), request["requestId"], request["clientId"], step["request"]["text"].encode())
        response = daemon.again(sent)
        data = response.get("data", {})
        data.pop("totals", None)
        for group in ("policy", "override", "explanation"):
            for path in paths_of(data.pop(group, {})):
                assert f"| `{path}` |" in CONFIGURATION, path
        for group in ("errorCodes", "commands"):
            data.pop(group, None)
        if isinstance(data.get("message"), dict):
            data["message"].update(payload="", attributes="")
        unnamed = {key for key in keys_of(data) if f"`{key}`" not in PROTOCOL and f'"{key}"' not in PROTOCOL}
        assert not unnamed


def test_the_client_in_shell_gets_its_answer(daemon: Daemon) -> None:
    script = scripts_of(PROTOCOL.split("## 10.")[1])[0]
    run = subprocess.run(["sh", "-euc", script], cwd=daemon.root, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    key = json.loads(run.stdout)["data"]["messageKey"]
    delivery = daemon.ask("consume_next", queue="telemetry")
    assert (delivery["message"]["messageKey"], delivery["message"]["payload"]) == (key, "temp=36.5")


def test_dead_letters_are_consumed_by_their_address_as_the_text_says(daemon: Daemon) -> None:
    section = PROTOCOL.partition("### Dead-letter addresses")[2].partition("\n## ")[0]
    for command in (Command.CONSUME_NEXT, Command.ACK, Command.NACK, Command.RELEASE, Command.LIST_DLQ):
        assert f"`{command}`" in section
    key = daemon.ask("publish", queue="letters", message="x")["messageKey"]
    daemon.ask("nack", **receipt(daemon.ask("consume_next", queue="letters")))
    for command in (Command.NACK, Command.RELEASE):
        daemon.ask(command, **receipt(daemon.ask("consume_next", queue="letters.dlq")))
        assert daemon.ask("list_dlq", queue="letters.dlq")["count"] == 1
    letter = daemon.ask("consume_next", queue="letters.dlq", waitMs=60000)
    assert (letter["message"]["messageKey"], letter["message"]["attempt"]) == (key, 1)
    daemon.ask("ack", **receipt(letter))
    assert daemon.ask("list_dlq", queue="letters")["count"] == 0


def receipt(delivery: dict[str, Any]) -> dict[str, str]:
    return {name: delivery["lease"][name] for name in ("messageKey", "leaseId")}


def test_the_checksum_is_computed_as_the_text_says(tmp_path: Path) -> None:
    script = next(script for script in scripts_of(JOURNAL) if "crc32" in script)
    sample = re.search(r'```\n(\{"id".*\n)```', JOURNAL)
    assert sample
    for line, verdict in ((sample[1], "intact"), (sample[1].replace("1207", "1206", 1), "damaged")):
        (tmp_path / "line").write_text(line)
        run = subprocess.run(["sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert run.stdout.strip() == verdict, run.stderr


#: What happens to one message after the other, so that every event that a client can bring about is written.
EVENTFUL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("set_policy", {"policy": {"retry": {"limit": 2, "initialDelaySec": 0.001}}}),
    ("pause", {}),
    ("resume", {}),
    ("publish", {"priority": 1, "delayMs": 1, "targetConsumerId": "wire", "attributes": {"a": 1}, "traceId": "t"}),
    ("consume_next", {"waitMs": 60000, "payloadAs": "value"}),
    ("extend_lease", {}),
    ("release", {}),
    ("consume_next", {}),
    ("nack", {"requeue": True}),
    ("consume_next", {"waitMs": 60000}),
    ("nack", {"requeue": True}),
    ("reprocess_dlq", {}),
    ("consume_next", {}),
    ("ack", {}),
    ("set_policy", {"policy": {"dlq": {"enabled": False}}}),
    ("publish", {}),
    ("consume_next", {}),
    ("nack", {}),
    ("publish", {}),
    ("consume_next", {"orderedSec": 60, "payloadAs": "none"}),
    ("activate", {"payloadAs": "value"}),
    ("set_policy", {"policy": {"done": {"keep": "headers"}}}),
    ("ack", {}),
    ("abandon", {"reason": "why"}),
    ("purge", {"state": "any", "resetTally": True}),
    ("import_state", {"engineMs": 0, "wallMs": 0}),
)

#: What is no client's doing: damage, what an operator does about it, and a wall clock that is set.
NOT_ASKED_FOR = {EventType.GAP, EventType.LOSS_ACCEPTED, EventType.DAMAGE_FOUND, EventType.RESCHEDULED}


def bring_about_what_operators_ask_for(daemon: Daemon) -> None:
    """What EVENTFUL does not: what operators do, and what comes by itself when its time is over."""
    times = {"retry": {"limit": 1}, "deduplication": {"mode": "window", "windowSec": 0.001}}
    daemon.ask("set_policy", queue="operated", policy=times)
    daemon.ask("create_queue", queue="log", createWith={"kind": "log", "log": {"retentionBytes": 5000}})
    position = daemon.ask("append", queue="log", message="for a reader")["last"]
    daemon.ask("move_reader", queue="log", reader="r", position=position)
    daemon.ask("delete_reader", queue="log", reader="r")
    daemon.ask("set_policy_patterns", patterns=[{"pattern": "^gathered$", "policy": {"gatherWindowSec": 3600}}])
    for _ in range(2):
        daemon.ask("publish", queue="gathered", message="a part")
    draft = daemon.ask("draft", queue="drafted", parts=["a"], name="n", ttlMs=60000, noPriority=True)["messageKey"]
    for value in ("a value", "another"):
        daemon.ask("set", messageKey=draft, part="a", message=value)
    daemon.ask("publish", queue="set", message="old")
    body = daemon.ask("consume_next", queue="set")["lease"]["leaseId"]
    daemon.ask("set", leaseId=body, message="new")
    daemon.ask("set_schedule", name="tick", queue="operated", cron="@every 1s", message={"a": 1})
    several: dict[str, Any] = {"targetConsumerId": "nobody", "targetFallbackMs": 1, "ttlMs": 60000}
    several |= {"deduplicationKey": "d", "orderingKey": "o", "correlationId": "c"}
    key = daemon.ask("publish", queue="operated", **several)["messageKey"]
    for delay in ({}, {"deliverAt": 32503680000000}):
        held = daemon.ask("publish", queue="operated", message="x", replyTo="r", **delay)["messageKey"]
        daemon.ask("hold", messageKey=held, reason="why")
        daemon.ask("unhold", messageKey=held)
    daemon.ask("move", messageKey=held, to="moved")
    daemon.ask("purge", queue="moved")
    daemon.ask("delete_queue", queue="moved")
    daemon.wait(lambda: "retargeted" in written(daemon), "its target's time to be over")
    delivery = daemon.ask("consume_next", queue="operated")
    assert delivery["message"]["messageKey"] == key
    daemon.ask("nack", **receipt(delivery))
    daemon.ask("release", **receipt(daemon.ask("consume_next", queue="operated.dlq")))
    for quarantined in (True, False):
        daemon.ask("quarantine_dlq", messageKey=key, quarantined=quarantined, reason="why")
    daemon.ask("reprocess_dlq", messageKey=key)
    daemon.wait(lambda: {"schedule_fired", "claims_ended"} <= written(daemon), "a run, and the end of a claim")
    daemon.ask("delete_schedule", name="tick")
    for _ in range(2):
        daemon.ask("append", queue="log", message="x" * 5000)
    claim = {"name": "claim:operated\0" + "0" * 32, "value": {"key": key, "untilEngineMs": 1}}
    daemon.ask("import_state", engineMs=0, wallMs=2**50, facts=[claim])
    daemon.wait(lambda: "trimmed" in written(daemon), "the retention of a log")
    for draining in (True, False, False):
        daemon.ask("drain", draining=draining)


def written(daemon: Daemon) -> set[str]:
    return {event["type"] for event in lines_of(daemon.root / "journal")}


def test_every_field_of_every_event_and_traffic_line_is_named(daemon: Daemon) -> None:
    lease: dict[str, Any] = {}
    for command, options in EVENTFUL:
        settles = command in ("ack", "nack", "release", "extend_lease", "activate")
        target = {"messageKey": lease["messageKey"], "leaseId": lease["leaseId"]} if settles else {"queue": "eventful"}
        if command in ("reprocess_dlq", "abandon"):
            target = {"messageKey": lease["messageKey"]}
        elif command == "import_state":
            target = {}
        data = daemon.ask(command, **target, **options)
        lease = data.get("lease") or lease
    bring_about_what_operators_ask_for(daemon)
    events = lines_of(daemon.root / "journal")
    assert set(EventType) - NOT_ASKED_FOR <= {event["type"] for event in events}
    head = next(event for event in events if event["type"] != EventType.EPOCH_STARTED)
    assert (head["type"], head["format"]) == (EventType.CLOCK_MARKED, JOURNAL_FORMAT)
    common, _, tables = JOURNAL.partition("## The traffic log")[0].partition("## The types")
    for event in events:
        row = next(line for line in tables.splitlines() if f"`{event['type']}`" in line[: line.find("|", 1)])
        row += tables.partition(f"### Fields of `{event['type']}`")[2].partition("\n### ")[0]
        for key in list(event)[7:]:
            assert f"`{key}`" in row or f"| `{key}` |" in common, (event["type"], key)
        for key in keys_of([event.get("failure", {}), dict.fromkeys(event.get("message", {}))]):
            assert f"`{key}`" in tables, (event["type"], key)
    daemon.ask("health")
    traffic = lines_of(daemon.root / "traffic")
    described = JOURNAL.partition("## The traffic log")[2]
    assert traffic
    for key in {key for line in traffic for key in line}:
        assert f"`{key}`" in described, key
