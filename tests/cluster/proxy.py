"""A proxy in front of one NATS server that can be cut: connections end and none are made, or bytes are held back."""

from __future__ import annotations

import asyncio
import contextlib


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
