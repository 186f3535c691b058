"""Writes to a connection that are joined."""

from __future__ import annotations

import asyncio

from postroom_gateway.writing import JoinedWriter


class Transport(asyncio.Transport):
    """Remembers what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing


def test_what_is_written_in_one_turn_of_the_loop_is_one_piece_in_order():
    async def run() -> list[bytes]:
        transport = Transport()
        writer = JoinedWriter(transport)
        for turn in (b"abc", b"d"):
            for number in turn:
                writer.write(bytes([number]))
            await asyncio.sleep(0)
        return transport.written

    assert asyncio.run(run()) == [b"abc", b"d"]


def test_large_pieces_are_written_at_once_behind_what_came_before():
    async def run() -> list[bytes]:
        transport = Transport()
        writer = JoinedWriter(transport)
        large = bytes(100_000)
        for data in (b"a", large, b"b"):
            writer.write(data)
        assert transport.written == [b"a" + large]
        writer.flush()
        await asyncio.sleep(0)
        return transport.written[1:]

    assert asyncio.run(run()) == [b"b"]


def test_nothing_is_written_to_a_connection_that_has_ended():
    async def run() -> list[bytes]:
        transport = Transport()
        JoinedWriter(transport).write(b"a")
        transport.closing = True
        await asyncio.sleep(0)
        return transport.written

    assert asyncio.run(run()) == []
