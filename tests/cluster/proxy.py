"""A proxy in front of one NATS server that can be cut: connections end and none are made, or bytes are held back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Proxy:
    """Passes connections on to ``port``. ``hold`` holds back bytes to the server, to the client or both, until
    ``pass_on``; ``cut`` ends all connections, and refuses new ones."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = False
        #: Set while bytes may pass, by direction.
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.pass_on()

    async def start(self) -> str:
        """Listen; return the address for clients."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def hold(self, *directions: str) -> None:
        for direction in directions or ("up", "down"):
            self._open[direction].clear()

    def pass_on(self) -> None:
        self._is_cut = False
        for event in self._open.values():
            event.set()

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        for name, source, target in (("up", reader, up_writer), ("down", up_reader, writer)):
            task = asyncio.create_task(self._pump(name, source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    await self._open[direction].wait()
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()


class Links:
    """The ways of several machines to the servers, each with proxies of its own, which a thread serves."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._ports = [int(url.rpartition(":")[2]) for url in servers]
        self._proxies: dict[str, list[Proxy]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def of(self, machine: str) -> list[str]:
        """Make the ways of a machine; return the addresses of the servers, as it is to use them."""
        self._proxies[machine] = [Proxy(port) for port in self._ports]
        return [self._run(proxy.start()) for proxy in self._proxies[machine]]

    def cut(self, machine: str) -> None:
        """End the machine's connections, and refuse new ones until ``pass_on``."""
        for proxy in self._proxies[machine]:
            self._do(proxy.cut)

    def hold(self, machine: str, *directions: str) -> None:
        """Hold back bytes to the servers (``up``), to the machine (``down``), or both, until ``pass_on``."""
        for proxy in self._proxies[machine]:
            self._do(proxy.hold, *directions)

    def pass_on(self, machine: str) -> None:
        for proxy in self._proxies[machine]:
            self._do(proxy.pass_on)

    def stop(self) -> None:
        for proxies in self._proxies.values():
            for proxy in proxies:
                self._run(proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, function: Callable[..., None], *arguments: str) -> None:
        async def call() -> None:
            function(*arguments)

        self._run(call())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
