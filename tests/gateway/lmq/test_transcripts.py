"""What the real server answered is what the gateway answers, but for ids, times and the differences that we chose."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.gateway.conftest import MakeGateway
from tests.gateway.gateway import Answer, Gateway
from tests.gateway.lmq.driven import DrivenDaemon
from tests.gateway.lmq.peers import RpcClient
from tests.wire.daemon import PATIENCE_S, wait_until

TRANSCRIPTS = Path(__file__).with_name("transcripts")
#: Time passes in such steps while a request waits.
STEP_MS = 10
#: How much longer or shorter a wait may be than the recorded one, which includes what the network and the server took.
TOLERANCE_MS = 50
LONGEST_MS = 5_000

#: The headers that describe a message, in their order.
MESSAGE_HEADERS = ("queue-name", "message-id", "message-type", "retry-remaining")
#: Keys about an answer. None of them holds of an answer with another status.
OF_ANSWERS = frozenset({"type", "allow", "body", "body-hex", "message"})

Exchange = dict[str, Any]


def exchanges(name: str) -> list[Exchange]:
    """What a transcript expects of the gateway."""
    data = tomllib.loads((TRANSCRIPTS / name).read_text("utf-8"))
    found = []
    for exchange in data["exchange"]:
        ours = exchange.pop("ours", {})
        assert ours.pop("why", "a reason") and "why" not in exchange
        if "status" in ours:
            exchange = {
                key: value for key, value in exchange.items() if key not in ("type", "allow", "body", "message")
            }
        found.append(exchange | ours)
    return found


class Ids:
    """Recorded ids, and those that the gateway returned in their place."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}

    def learn(self, recorded: str, actual: str) -> None:
        """What a recorded id stands for."""
        assert actual not in self._actual.values(), "an id was used twice"
        self._actual[recorded] = actual

    def replace(self, text: bytes) -> bytes:
        """Replace recorded ids, in any spelling."""
        for recorded, actual in self._actual.items():
            for old, new in ((recorded, actual), (recorded.replace("-", ""), actual.replace("-", ""))):
                text = text.replace(old.encode(), new.encode()).replace(old.upper().encode(), new.upper().encode())
        return text


class HttpReplay:
    """Sends what a transcript says, and compares the answers."""

    def __init__(self, gateway: Gateway, daemon: DrivenDaemon, pool: ThreadPoolExecutor) -> None:
        self._gateway = gateway
        self._daemon = daemon
        self._pool = pool
        self._ids = Ids()

    def run(self, all_exchanges: list[Exchange]) -> None:
        """Run a whole transcript."""
        during: Exchange | None = None
        for exchange in all_exchanges:
            if "during-next-ms" in exchange:
                during = exchange
                continue
            self._daemon.advance(exchange.get("pause-ms", 0))
            reply, took_ms = self._answer(exchange, during)
            self._compare(exchange, reply)
            if "took-ms" in exchange:
                assert abs(took_ms - exchange["took-ms"]) <= TOLERANCE_MS, (exchange["request"], took_ms)
            during = None

    def _answer(self, exchange: Exchange, during: Exchange | None) -> tuple[Answer, int]:
        """The answer, and how much time passed until then."""
        pending = self._pool.submit(self._send, exchange)
        if "took-ms" not in exchange:
            return pending.result(PATIENCE_S), 0
        wait_until(self._waits, "the request waits")
        passed_ms = 0
        close_from_ms = exchange["took-ms"] - 2 * TOLERANCE_MS  # what came before is noticed then, and is too early
        while self._waits() if passed_ms >= close_from_ms else not pending.done():
            assert passed_ms < LONGEST_MS, exchange["request"]
            if during and passed_ms == during["during-next-ms"]:
                self._compare(during, self._send(during))
            else:
                passed_ms += STEP_MS
                self._daemon.advance(STEP_MS)
        return pending.result(PATIENCE_S), passed_ms

    def _waits(self) -> bool:
        """Whether the daemon owes an answer. It answers what is due before it says that time has passed, and the
        gateway reads that before it is asked."""
        return self._gateway.metric("postroom_gateway_waiting_requests") == 1

    def _send(self, exchange: Exchange) -> Answer:
        method, path = self._ids.replace(exchange["request"].encode()).decode().split(" ")
        headers = {"accept": exchange["accept"]} if "accept" in exchange else {}
        if "sent-type" in exchange:
            headers["content-type"] = exchange["sent-type"]
        has_body = method in ("POST", "PUT", "PATCH")
        return self._gateway.ask(method, path, body_of(exchange, "sent") if has_body else None, headers)

    def _compare(self, exchange: Exchange, reply: Answer) -> None:
        """Compare an answer with what is expected."""
        what = (exchange, reply)
        assert reply.status == exchange["status"], what
        message = exchange.get("message")
        if message:
            names = [name for name, _ in reply.headers][-5:]
            assert names == ["content-type", *(f"x-lmq-{name}" for name in MESSAGE_HEADERS)], what
            _, queue, message_id, kind, retry = (value for _, value in reply.headers[-5:])
            assert (kind, retry) == (message["type"], str(message["retry"])), what
            assert queue in exchange.get("queues", [message["queue"]]), what
            self._ids.learn(message["id"], message_id)
        else:
            assert not [name for name, _ in reply.headers if name.startswith("x-lmq-")], what
        assert reply.header("allow") == exchange.get("allow"), what
        if reply.status >= 400:
            return  # LMQ says nothing more
        expected_type = self._ids.replace(exchange.get("type", "").encode()).decode()
        assert (reply.header("content-type") or "") == expected_type, what
        expected = self._ids.replace(body_of(exchange, "body"))
        if "qre" in exchange["request"] and exchange["request"].startswith("POST"):
            assert json.loads(reply.body) == json.loads(expected), what  # queues are in no order
        else:
            assert reply.body == expected, what


def body_of(exchange: Exchange, key: str) -> bytes:
    """A body, which a transcript has as text or in hex."""
    return bytes.fromhex(exchange[f"{key}-hex"]) if f"{key}-hex" in exchange else exchange.get(key, "").encode()


@pytest.fixture
def replay(driven_daemon: DrivenDaemon, make_gateway: MakeGateway) -> Iterator[HttpReplay]:
    """Replays transcripts of HTTP on a fresh gateway and daemon."""
    gateway = make_gateway(driven_daemon).start()
    with ThreadPoolExecutor(1) as pool:
        yield HttpReplay(gateway, driven_daemon, pool)


@pytest.mark.parametrize("name", ["requests.toml", "life.toml"])
def test_http_is_answered_as_the_real_server_did(replay, name):
    replay.run(exchanges(name))


def test_the_paths_before_0_6_2_are_the_same_doors(replay):
    older = [("/messages", "/msgs"), ("/properties", "/props")]
    for exchange in (all_exchanges := exchanges("requests.toml")):
        for new, old in older:
            exchange["request"] = exchange["request"].replace(f" {new}", f" {old}")
    replay.run(all_exchanges)


def test_messagepack_rpc_is_answered_as_the_real_server_did(gateway):
    ids = Ids()
    with RpcClient(gateway) as client:
        for exchange in exchanges("rpc.toml"):
            if "before" in exchange:
                client.send(json.loads(exchange["before"]))
            if "http" in exchange:
                method, path = exchange["http"].split(" ")
                headers = {"content-type": exchange["sent-type"]}
                assert gateway.ask(method, path, exchange["sent"].encode(), headers).status == 200
            request = json.loads(ids.replace(exchange["request"].encode()))
            client.send(request, is_new=exchange.get("specification") == "new")
            answer = client.receive_bytes()
            if "id" in exchange:
                ids.learn(exchange["id"], msgpack.unpackb(answer)[3]["id"])
            if "error" in exchange:
                _, _, error, result = msgpack.unpackb(answer)
                assert (bytes(error).decode() if type(error) is list else error, result) == (exchange["error"], None)
                continue
            recorded = exchange["answer-hex"]
            expected = ids.replace(bytes.fromhex(recorded.removesuffix("...")))
            assert answer == expected or (recorded.endswith("...") and answer.startswith(expected)), exchange
