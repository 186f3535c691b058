"""The program: real processes, one of which is stopped for longer than the time-out, and the commands."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import pytest
from click.testing import CliRunner, Result

from postroom_cluster.cli import main
from tests.cluster.nodes import until
from tests.cluster.peer import NotConfirmed, Peer

TOML = """
[daemon]
socket = "{name}.sock"
[cluster]
name = "processes"
node = "{name}"
[nats]
servers = {servers}
[failover]
after_seconds = 1.0
"""


async def command(*arguments: str) -> Result:
    """A command, in a thread, because it has a loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, main, list(arguments))


def test_a_process_that_was_stopped_for_longer_than_the_time_out_is_refused_when_it_wakes(servers, tmp_path):
    async def run():
        peers, processes, files = [], [], []
        try:
            for name in ("a", "b"):
                file = tmp_path / f"{name}.toml"
                file.write_text(TOML.format(name=name, servers=json.dumps(servers.urls)))
                files.append(str(file))
                peers.append(await Peer(tmp_path / f"{name}.sock", name, confirm_s=60.0).start())
            while (await command("create", "--config", files[0], "--no-other-node-leads")).exit_code:
                await asyncio.sleep(0.1)
            assert (await command("create", "--config", files[0])).exit_code == 2
            for file in files:
                processes.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "postroom_cluster", "run", "--config", file,
                        stderr=asyncio.subprocess.PIPE,
                    )
                )  # fmt: skip
            first, second = peers
            await until("the first leads", lambda: first.is_leader)
            await first.publish("one")
            await until("it is applied", lambda: second.texts() == ["one"])

            processes[0].send_signal(signal.SIGSTOP)
            late = asyncio.create_task(first.publish("late"))
            await until("the other leads", lambda: second.is_leader)
            await second.publish("two")
            processes[0].send_signal(signal.SIGCONT)
            with pytest.raises(NotConfirmed):
                await late
            await until("both agree", lambda: first.lines == second.lines)
            assert first.texts() == ["one", "two"]

            shown = await command("status", "--json", "--config", files[0])
            assert {one["node"]: one["role"] for one in json.loads(shown.output)} == {"a": "following", "b": "leading"}
            assert (await command("promote", "--config", files[0])).exit_code == 0
            await until("it leads again", lambda: first.is_leader)
            await until("the other follows", lambda: not second.is_leader)
            await first.publish("three")
            await until("both agree", lambda: first.lines == second.lines)
            for process in processes:
                process.terminate()
                assert await process.wait() == 0
            assert (await command("status", "--config", files[0])).exit_code == 1
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                _, log = await process.communicate()
                print(log.decode())
                assert b"Traceback" not in log
            for peer in peers:
                await peer.stop()

    asyncio.run(run())
