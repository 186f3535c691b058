"""The commands of LMQ's own document, by curl."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.wire.daemon import PATIENCE_S


@pytest.fixture
def curl(gateway):
    """Runs curl, as LMQ's document shows it, with a path in place of the address. Returns what it prints."""
    program = shutil.which("curl")
    if program is None:
        pytest.skip("there is no curl")

    def run(*words: str) -> str:
        *options, path = words
        address = f"http://127.0.0.1:{gateway.ports['lmq-http']}{path}"
        ran = subprocess.run([program, "-sS", "-i", *options, address], capture_output=True, timeout=PATIENCE_S)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.decode().replace("\r\n", "\n")

    return run


@pytest.mark.parametrize("messages", ["/msgs", "/messages"])
def test_the_first_steps_of_the_document(curl, messages):
    pushed = curl("-XPOST", "-H", "content-type: text/plain", "-d", "hello world!", f"{messages}/myqueue")
    assert pushed.startswith("HTTP/1.1 200 OK\n")
    assert pushed.endswith('content-length: 14\ncontent-type: application/json\n\n{"accum":"no"}')
    pulled = curl(f"{messages}/myqueue")
    assert pulled.endswith("\n\nhello world!")
    assert "content-type: text/plain\nx-lmq-queue-name: myqueue\nx-lmq-message-id: " in pulled
    assert "\nx-lmq-message-type: normal\n" in pulled
    [message_id] = re.findall("x-lmq-message-id: (.*)", pulled)
    assert curl("-XPOST", f"{messages}/myqueue/{message_id}?reply=ack").startswith("HTTP/1.1 204 No Content\n")
    assert curl("-XPOST", f"{messages}/myqueue/{message_id}?reply=ack").startswith("HTTP/1.1 404 Not Found\n")


def test_a_file_is_pushed_with_a_continue_and_comes_back(curl, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1_100_000)
    assert "HTTP/1.1 100 Continue\n" in curl("-XPOST", "--data-binary", f"@{file}", "/messages/large")
    assert curl("/messages/large?t=0").endswith("\n\n" + "x" * 1_100_000)
