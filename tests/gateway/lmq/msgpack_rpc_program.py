"""A program that uses LMQ by msgpack-rpc-python 0.4.1. It runs with that library's own dependencies, not with ours."""

from __future__ import annotations

import sys

import msgpackrpc
from msgpackrpc.error import RPCError


def text(value: object) -> object:
    """What the library returns, with its bytes as text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {text(key): text(item) for key, item in value.items()}
    return [text(item) for item in value] if isinstance(value, (list, tuple)) else value


def main() -> None:
    """Push, pull, reply, and fail."""
    client = msgpackrpc.Client(msgpackrpc.Address("127.0.0.1", int(sys.argv[1])), timeout=30)
    assert text(client.call("push", "rpc", {"n": [1, 2.5, None]})) == "ok"
    pulled = text(client.call("pull", "rpc", 5))
    assert isinstance(pulled, dict)
    assert pulled["content"] == {"n": [1, 2.5, None]}
    assert (pulled["queue"], pulled["type"], pulled["retry"]) == ("rpc", "normal", 2)
    assert text(client.call("retain", "rpc", pulled["id"])) == "ok"
    assert text(client.call("done", "rpc", pulled["id"])) == "ok"
    try:
        client.call("done", "rpc", pulled["id"])
    except RPCError as error:
        assert bytes(error.args[0]).decode() == "throw:not_found"
    else:
        raise AssertionError("a message was done twice")
    waiting = client.call_async("pull", "rpc", 20)
    client.notify("push", "rpc", "notified")
    assert text(waiting.get())["content"] == "notified"  # type: ignore[index]
    client.close()
    print("all is well")


main()
