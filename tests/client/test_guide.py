"""The examples of the client's guide about working on queues are run unchanged, against a daemon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from postroom_client import Client
from postroom_client._processing import REASON_LIMIT
from postroom_client._worker import Options
from postroom_client.cli.program import ATTRIBUTES_BYTES, REJECTED_STATUS, VARIABLES

from .conftest import PACKAGE, PATIENCE_S, ROOT

GUIDE = (ROOT / "docs" / "client.md").read_text("utf-8")
README = (PACKAGE.parents[1] / "README.md").read_text("utf-8")
IMPORT = "from __future__ import print_function\nfrom postroom_client import Client\n"


def section(title: str) -> str:
    return GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def python_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def start(script: str, ipc_root: Path) -> subprocess.Popen[str]:
    script = IMPORT + script.replace("/var/lib/postroom/ipc", str(ipc_root))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    return output


@pytest.mark.parametrize("title", ["Several messages at once", "Working on messages"])
def test_what_the_guide_shows_runs(title: str, ipc_root: Path) -> None:
    blocks = python_blocks(section(title))
    assert len(blocks) == 2
    for block in blocks:
        output_of(start(block, ipc_root))


def test_the_worker_of_the_guide_rejects_what_it_cannot_use(ipc_root: Path) -> None:
    with Client(ipc_root, timeout=PATIENCE_S) as client:
        key = client.publish("orders", {"number": 8})["messageKey"]
        output_of(start(python_blocks(section("Working on messages"))[1], ipc_root))
        letters = {letter["messageKey"]: letter["reason"] for letter in client.list_dlq("orders")["messages"]}
        assert letters[key] == "an order needs an id"


def test_a_request_of_the_guide_gets_the_reply_of_the_guide(ipc_root: Path) -> None:
    asking, replying = python_blocks(section("Requests with replies"))
    server = start(replying, ipc_root)
    assert output_of(start(asking, ipc_root)) == "6\n"
    output_of(server)


def test_the_program_of_the_guide_empties_the_queue(ipc_root: Path, tmp_path: Path) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", section("A program for each message"), re.DOTALL)
    done = shell(script.replace("orders", "guide-orders"), ipc_root, tmp_path)
    assert "guide-orders, attempt 1: 4711" in done.stdout
    with Client(ipc_root, timeout=PATIENCE_S) as client:
        (letter,) = client.list_dlq("guide-orders")["messages"]
        assert letter["reason"] == "exit status 65: no blanks in an order, please"
        assert client.status("guide-orders")["metrics"]["ready"] == 0


def test_the_readme_shows_what_runs(ipc_root: Path, tmp_path: Path) -> None:
    with Client(ipc_root, timeout=PATIENCE_S) as client:
        server = threading.Thread(
            target=client.worker,
            args=("sums", lambda one: client.reply(one, sum(one.payload))),
            kwargs={"max_messages": 1},
        )
        server.start()
        for block in python_blocks(README):
            output_of(start(block, ipc_root))
        server.join(PATIENCE_S)
        (script,) = (text for text in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "publish" in text)
        shell(script.replace("/var/lib/postroom/ipc", str(ipc_root)), ipc_root, tmp_path)
        assert client.status("telemetry")["metrics"]["ready"] == 0
        assert (tmp_path / "telemetry.log").stat().st_size > 100


def shell(script: str, ipc_root: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=directory,
        env={**os.environ, "PATH": path, "POSTROOM_IPC_ROOT": str(ipc_root)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_guide_describes_everything_that_exists() -> None:
    for name in vars(Options):
        assert name.startswith("_") or f"`{name}`" in section("Working on messages"), name
    text = section("A program for each message")
    for name, _ in VARIABLES:
        assert f"`POSTROOM_{name}`" in text, name
    assert f"\n| {REJECTED_STATUS} (EX_DATAERR) | makes it a dead letter" in text
    assert f"{ATTRIBUTES_BYTES:,} bytes" in text
    assert f"{REASON_LIMIT} characters" in section("Working on messages")
