"""The client of WebSocket MQ, which is in JavaScript, as a test uses it: by a program that does what it is told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any

from tests.gateway.gateway import Gateway
from tests.wire.daemon import PATIENCE_S

#: Where ``scripts/setup`` installs the client.
_PACKAGES = Path(sys.prefix) / "share" / "delight-rpc"
_DRIVER = Path(__file__).with_name("driver.mjs")


class RpcError(Exception):
    """An error that a call got: its name, its message, and the names of the classes of which it is an instance."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['name']}: {error['message']}")
        self.name: str = error["name"]
        self.message: str = error["message"]
        self.classes: set[str] = set(error["classes"])


class Clients:
    """The program, and the connections that it has."""

    def __init__(self) -> None:
        node = shutil.which("node", path=f"{sys.prefix}/bin") or shutil.which("node")
        assert node, "there is no node: run scripts/setup"
        self._process = subprocess.Popen(
            [node, _DRIVER, _PACKAGES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ids = count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def connect(self, gateway: Gateway, **options: Any) -> Client:
        """A client with a connection of its own."""
        name = f"client-{next(self._ids)}"
        self.start("connect", name=name, url=f"ws://127.0.0.1:{gateway.ports['mq-websocket']}/", options=options).get()
        return Client(self, name)

    def start(self, command: str, **fields: Any) -> Started:
        """Give the program a command."""
        number, outcome = next(self._ids), Future[Any]()
        self._waiting[number] = outcome
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"id": number, "command": command, **fields}) + "\n")
        self._process.stdin.flush()
        return Started(self, number, outcome)

    def end(self) -> None:
        """End the program."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            outcome = json.loads(line)
            waiting = self._waiting.pop(outcome["id"])
            if "error" in outcome:
                waiting.set_exception(RpcError(outcome["error"]))
            else:
                waiting.set_result(outcome["result"])


class Started:
    """A command whose outcome may come later."""

    def __init__(self, clients: Clients, number: int, outcome: Future[Any]) -> None:
        self._clients = clients
        self._number = number
        self._outcome = outcome

    def get(self) -> Any:
        """Its result. Raises ``RpcError``."""
        return self._outcome.result(PATIENCE_S)

    def abort(self) -> None:
        """Abort the call."""
        self._clients.start("abort", of=self._number).get()

    @property
    def is_done(self) -> bool:
        """Whether there is an outcome."""
        return self._outcome.done()


class Client:
    """One connection."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self._name = name

    def call(self, method: str, *params: Any) -> Any:
        """Call a method. Raises ``RpcError``."""
        return self.start(method, *params).get()

    def start(self, method: str, *params: Any) -> Started:
        """Begin to call a method."""
        return self._clients.start("call", name=self._name, method=method, params=params)

    def batch(self, *calls: tuple[Any, ...], parallel: bool) -> Any:
        """Call several methods in one request: each outcome, as ``{"result": …}`` or ``{"error": …}``."""
        named = [{"method": method, "params": params} for method, *params in calls]
        return self._clients.start("batch", name=self._name, calls=named, parallel=parallel).get()

    def close(self) -> int:
        """Close the connection; the code with which it ends."""
        return int(self._clients.start("close", name=self._name).get())

    def closed(self) -> Started:
        """The end of the connection, with its code."""
        return self._clients.start("closed", name=self._name)

    def terminate(self) -> None:
        """End the connection without a word."""
        self._clients.start("terminate", name=self._name).get()
