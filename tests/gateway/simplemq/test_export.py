"""Topics as dated files that a person can read."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from click.testing import CliRunner

from postroom_gateway.cli import main


def test_messages_are_written_by_day_with_their_states(client, served, topic, tmp_path):
    before = datetime.now(UTC).date().isoformat()
    consumer = client.settle(topic)
    client.post("/api/message/publish", {"messageId": "dead", "topic": topic, "payload": "é"})
    for _ in range(3):
        got = consumer.said()
        consumer.asks("NACK", messageId=got["messageId"], reason="no paper")
    leased = {"messageId": "leased", "topic": topic, "payload": {"a": 1}, "producerInfo": {"producerId": "press-7"}}
    client.post("/api/message/publish", leased)
    assert consumer.said()["messageId"] == "leased"
    served.daemon.publish(topic, "later", delayMs=3_600_000)
    client.publish(f"{topic}-other", b"\xff")

    command = ["export-simplemq", "--config", str(served.gateway.file), "--to", str(tmp_path)]
    done = CliRunner().invoke(main, [*command, "--topic", topic, "--topic", f"{topic}-other"])
    assert done.exit_code == 0, done.output
    assert "4 messages" in done.output
    days = sorted(path.name for path in (tmp_path / "messages").iterdir())
    assert set(days) <= {before, datetime.now(UTC).date().isoformat()}
    found = []
    for day in days:
        assert [path.name for path in (tmp_path / "messages" / day).iterdir()] == ["messages.json"]
        found += json.loads((tmp_path / "messages" / day / "messages.json").read_text())["messages"]
    shown = [(one["topic"], one["status"], one.get("payload"), one.get("body"), one.get("reason")) for one in found]
    assert shown == [
        (topic, "PENDING", "later", None, None),
        (topic, "PROCESSING", '{"a":1}', None, None),
        (topic, "FAILED", "é", None, "retry limit exceeded (attempt 3): no paper"),
        (f"{topic}-other", "PENDING", None, "/w==", None),
    ]
    assert [one["messageId"] for one in found][1:3] == ["leased", "dead"]
    assert [one["attributes"] for one in found] == [{}, {"producerId": "press-7"}, {}, {}]

    everything = CliRunner().invoke(main, command)
    assert everything.exit_code == 0, everything.output
    refused = CliRunner().invoke(main, [*command, "--topic", "t" * 257])
    assert refused.exit_code == 1
    assert "postroom-gateway: " in refused.output
