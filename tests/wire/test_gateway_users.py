"""Principals that a gateway names over the lane: what they may do, what they may not, and who may name them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon
from tests.wire.lane import Fields, LaneClient
from tests.wire.users import ANNA, BERT, acting_as, client_of, send_as

SCANNER = "token:scanner-7"
OTHER = "token:other"
NAMES = "principal"
ME = str(os.geteuid())


def code_of(answer: Fields) -> str:
    return "OK" if answer["ok"] else str(answer["error"]["code"])


def traffic_of(daemon: Daemon) -> list[Fields]:
    """The lines of the traffic log of a daemon, which is stopped for it."""
    daemon.stop()
    paths = sorted((daemon.root / "traffic").glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


class Gateway(LaneClient):
    """A connection of a user who may name others. ``door`` is that of ``hello``."""

    def __init__(self, daemon: Daemon, door: str = "") -> None:
        super().__init__(daemon.ipc, "gateway", greet=False)
        hello: Fields = {"versions": [1], "clientId": "gateway"}
        self.send({"hello": hello | ({"door": door} if door else {})})
        self.hello = self.receive()[0]["hello"]

    def code(self, principal: Any, command: str, payload: Fields, **envelope: Any) -> str:
        """``OK``, or the code with which a request of a principal is refused."""
        return code_of(self.of(principal, command, payload, **envelope))

    def of(self, principal: Any, command: str, payload: Fields, **envelope: Any) -> Fields:
        """The answer to a request of a principal, which has no client id if ``envelope`` gives none."""
        request_id = self.begin(principal, command, payload, **envelope)
        answer, _ = self.receive()
        assert answer["requestId"] == request_id
        return answer

    def begin(self, principal: Any, command: str, payload: Fields, **envelope: Any) -> str:
        """Send a request of a principal without waiting for its answer; its id."""
        whole: Fields = {"clientId": None, "as": principal, **envelope}
        return self.request(command, payload, **whole)

    def send(self, header: bytes | Fields, body: bytes = b"") -> None:
        """Send a frame, without a client id that is None."""
        if isinstance(header, dict):
            header = {name: value for name, value in header.items() if name != "clientId" or value is not None}
        super().send(header, body)


@pytest.fixture
def daemon(make_daemon: MakeDaemon) -> Daemon:
    """A daemon to which this process is a gateway."""
    return make_daemon(config={"gateway": {"users": f"{ME}, nobody-has-this-name"}}).start()


@pytest.fixture
def gateway(daemon: Daemon) -> Iterator[Gateway]:
    """A connection of this process to it."""
    with Gateway(daemon, "lmq-http") as one:
        yield one


def test_a_principal_is_recorded_by_its_name_with_the_door_of_its_gateway(daemon: Daemon, gateway: Gateway) -> None:
    assert gateway.hello is not None and gateway.hello["gateway"] is True
    assert gateway.of(SCANNER, "publish", {"queue": "q", "message": "x"}, requestId="p1")["ok"]
    assert gateway.of(SCANNER, "consume_next", {"queue": "q"}, requestId="c1", door="lmq-rpc")["ok"]
    (published,), (leased,) = daemon.events("published"), daemon.events("leased")
    by = {"principal": SCANNER, "client": SCANNER, "request": "p1", "door": "lmq-http"}
    assert {name: value for name, value in published["by"].items() if name != "digest"} == by
    assert (published["publisher"], leased["principal"], leased["consumer"]) == (SCANNER,) * 3
    assert leased["by"]["door"] == "lmq-rpc" and "uid" not in leased
    (row,) = daemon.ask("list_inflight")["messages"]
    assert row["principal"] == SCANNER and "uid" not in row
    history = daemon.ask("get_message", messageKey=published["key"], events=10)["events"]
    assert by in [event["by"] for event in history]
    lines = [line for line in traffic_of(daemon) if line["request"] in ("p1", "c1")]
    assert [(line["principal"], line["door"]) for line in lines] == [(SCANNER, "lmq-http"), (SCANNER, "lmq-rpc")]


def test_the_command_line_shows_principals_and_doors(daemon: Daemon, gateway: Gateway) -> None:
    key = gateway.of(SCANNER, "publish", {"queue": "q", "message": "x"})["data"]["messageKey"]
    gateway.of(SCANNER, "consume_next", {"queue": "q", "consumerId": "c"})

    def shown(*words: str) -> str:
        command = [sys.executable, "-m", "postroom_client", "--ipc-root", str(daemon.ipc), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert SCANNER in shown("inflight")
    assert f"by {SCANNER}, principal {SCANNER}, door lmq-http" in shown(
        "message", "--message-key", key, "--events", "5"
    )


def test_a_gateway_is_a_user_like_others_if_it_names_nobody(daemon: Daemon, gateway: Gateway) -> None:
    gateway.ask("publish", {"queue": "q", "message": "x"})
    assert daemon.events("published")[0]["by"] | {"digest": "", "request": ""} == {
        "uid": int(ME),
        "client": "gateway",
        "door": "lmq-http",
        "digest": "",
        "request": "",
    }


# --- who may name principals ------------------------------------------------------------------------------------------


def test_who_is_not_in_gateway_users_may_not_name_others(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    with LaneClient(daemon.ipc) as client:
        assert client.hello is not None and "gateway" not in client.hello
        for more in ({"as": SCANNER}, {"door": "lmq-http"}, {"as": "uid:0"}, {"as": ""}, {"as": 7}):
            answer, _ = client.call("publish", {"queue": "q", "message": "x"}, **more)
            assert code_of(answer) == "ERR_FORBIDDEN" and "gateway.users" in answer["error"]["message"], more
        assert client.ask("health", {})
    with LaneClient(daemon.ipc, greet=False) as client:
        client.send({"hello": {"versions": [1], "clientId": "c", "door": "lmq-http"}})
        answer, _ = client.receive()
        assert code_of(answer) == "ERR_FORBIDDEN" and client.is_ended()
    assert daemon.events("published") == []
    refused = [line for line in traffic_of(daemon) if line["code"] == "ERR_FORBIDDEN"]
    assert [line["uid"] for line in refused] == [int(ME)] * 5


def test_a_request_file_may_not_name_others(daemon: Daemon) -> None:
    answer = daemon.again(daemon.request("publish", {"queue": "q", "message": "x"}, **{"as": SCANNER}))
    assert answer["error"]["code"] == "ERR_INVALID_REQUEST"
    labelled = daemon.request("publish", {"queue": "q", "message": "x"}, door=["whatever", 1])
    assert daemon.again(labelled)["ok"]
    assert [event["by"].get("door") for event in daemon.events("published")] == [None]


def test_a_reload_gives_and_takes_the_right_to_name_others(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()

    def answers(client: Gateway, code: str) -> bool:
        return client.code(SCANNER, "health", {}) == code

    with Gateway(daemon) as client:
        for users, code in ((ME, "OK"), ("", "ERR_FORBIDDEN"), (f" 4, {ME}", "OK")):
            (daemon.root / "config.json").write_text(json.dumps({"gateway": {"users": users}}))
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait(partial(answers, client, code), f"{code} with users {users!r}")


@pytest.mark.parametrize(
    "name",
    ["uid:0", "uid:token", "token:", "token", ":x", "Token:x", "7:x", "token:*", "token:a\nb", "token:a\u2028b"]
    + ["token:a/b", "token:\x1b[31m", "token:" + "x" * 128, "", 7, None, ["token:x"], {"token": "x"}],
)
def test_what_is_no_name_of_a_principal_is_refused(daemon: Daemon, gateway: Gateway, name: Any) -> None:
    answer, _ = gateway.call("publish", {"queue": "q", "message": "x"}, **{"as": name})
    assert code_of(answer) == ("OK" if name is None else "ERR_INVALID_REQUEST")


@pytest.mark.parametrize("door", ["", "mailbox", "lane", "LMQ", "a b", 'x","uid":0', "x\ny", "x" * 33, 7, ["lmq-http"]])
def test_what_is_no_name_of_a_door_is_refused(daemon: Daemon, gateway: Gateway, door: Any) -> None:
    answer, _ = gateway.call("publish", {"queue": "q", "message": "x"}, door=door)
    assert code_of(answer) == "ERR_INVALID_REQUEST"
    with LaneClient(daemon.ipc, greet=False) as client:
        client.send({"hello": {"versions": [1], "clientId": "c", "door": door}})
        assert code_of(client.receive()[0]) == "ERR_INVALID_REQUEST" and client.is_ended()


# --- what a principal may do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["root:0", "user:root", "token:0", "daemon:root", "operator:x"])
def test_no_principal_is_a_master_or_an_operator_whatever_its_name(daemon: Daemon, gateway: Gateway, name: str) -> None:
    gateway.ask("publish", {"queue": "q", "message": "x"})
    assert gateway.code(name, "read_state", {}) == "ERR_FORBIDDEN"
    assert gateway.code(name, "import_state", {}) == "ERR_FORBIDDEN"
    assert gateway.code(name, "drain", {}) == "ERR_FORBIDDEN"
    assert gateway.code(name, "purge", {"queue": "q"}) == "ERR_FORBIDDEN"
    assert gateway.code(name, "publish", {"queue": "q", "message": "x"}) == "OK"


def test_rules_name_a_principal_or_all_of_a_scheme(make_daemon: MakeDaemon) -> None:
    rules = [
        {"who": [f"{NAMES} {OTHER}"], "deny": ["consume"]},
        {"who": [f"{NAMES} token:*"], "queue": "in", "allow": ["publish", "consume"]},
        {"who": [f"{NAMES} {SCANNER}"], "queue": "ops", "allow": ["operate"]},
        {"who": ["user root", "group root"], "queue": "roots", "allow": ["publish"]},
    ]
    access = {"rules": rules, "default": [], "operators": ["everyone", f"{NAMES} cert:admin"]}
    daemon = make_daemon(config={"access": access, "gateway": {"users": ME}}).start()
    message = {"message": "x"}
    with Gateway(daemon) as gateway:
        gateway.ask("publish", {"queue": "ops"} | message)
        assert gateway.code(SCANNER, "publish", {"queue": "in"} | message) == "OK"
        assert gateway.code(OTHER, "publish", {"queue": "in"} | message) == "OK"
        assert gateway.code(OTHER, "consume_next", {"queue": "in"}) == "ERR_FORBIDDEN"
        assert gateway.code(SCANNER, "consume_next", {"queue": "in"}) == "OK"
        assert gateway.code("tokens:x", "publish", {"queue": "in"} | message) == "ERR_FORBIDDEN"
        assert gateway.code(SCANNER, "pause", {"queue": "ops"}) == "OK"
        assert gateway.code(OTHER, "pause", {"queue": "ops"}) == "ERR_FORBIDDEN"
        assert gateway.code(SCANNER, "publish", {"queue": "roots"} | message) == "ERR_FORBIDDEN"
        assert gateway.code("cert:admin", "drain", {"enabled": False}) == "OK"
        assert gateway.code(SCANNER, "drain", {"enabled": False}) == "ERR_FORBIDDEN"  # everyone: every local user


def test_a_lease_and_its_message_belong_to_the_principal_that_has_it(daemon: Daemon, gateway: Gateway) -> None:
    gateway.of(SCANNER, "publish", {"queue": "q", "message": "x"})
    shared = {"queue": "q", "consumerId": "same"}
    key = gateway.of(SCANNER, "consume_next", shared)["data"]["message"]["messageKey"]
    by_name = {"messageKey": key, "consumerId": "same"}
    assert gateway.code(OTHER, "ack", by_name) == "ERR_LEASE_MISMATCH"
    assert gateway.code(OTHER, "nack", by_name) == "ERR_LEASE_MISMATCH"
    history = gateway.of(OTHER, "get_message", {"messageKey": key, "events": 10})["data"]
    assert "lease" not in history["events"][-1]
    assert gateway.code(SCANNER, "ack", by_name) == "OK"


@on_every_store
def test_a_lease_belongs_to_its_principal_after_a_kill_however_long_its_name(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"gateway": {"users": ME}}).start()
    name = "token:" + "ä" * 61
    with Gateway(daemon) as gateway:
        gateway.of(name, "publish", {"queue": "q" * 200, "message": "x"})
        message = gateway.of(name, "consume_next", {"queue": "q" * 200, "consumerId": "same"})["data"]["message"]
    daemon.restart(kill=True)
    by_name = {"messageKey": message["messageKey"], "consumerId": "same"}
    with Gateway(daemon) as gateway:
        assert gateway.code(OTHER, "ack", by_name) == "ERR_LEASE_MISMATCH"
        assert daemon.ask("list_inflight")["messages"][0]["principal"] == name
        assert gateway.code(name, "ack", by_name) == "OK"


def test_the_repeat_of_another_principal_is_another_request(daemon: Daemon, gateway: Gateway) -> None:
    payload = {"queue": "q", "message": "x"}
    keys = [gateway.of(one, "publish", payload, idempotencyKey="k")["data"] for one in (SCANNER, SCANNER, OTHER)]
    keys.append(gateway.ask("publish", payload, idempotencyKey="k"))
    assert keys[0] == keys[1]
    assert len({one["messageKey"] for one in keys}) == 3
    with Gateway(daemon) as second:  # over another connection it is the same
        assert second.of(SCANNER, "publish", payload, idempotencyKey="k")["data"] == keys[0]
        same_bytes = {"requestId": "r", "as": SCANNER, "command": "publish", "payload": payload}
        first: list[Any] = []
        for connection in (gateway, second):
            connection.send(same_bytes)
            first.append(connection.receive()[0])
    assert first[0] == first[1]
    assert daemon.counts("q") == {"ready": 4}


def test_a_principal_has_its_own_client_id_and_those_of_nobody(make_shared: MakeDaemon) -> None:
    daemon = make_shared(config={"gateway": {"users": str(ANNA)}, "clients": {"press-7": "root"}}).start()
    daemon.answer(send_as(daemon, BERT, "health", {}))
    daemon.answer(send_as(daemon, ANNA, "health", {}))
    with acting_as(ANNA), Gateway(daemon) as gateway:
        ids = {SCANNER: "OK", "nobodys": "OK", client_of(BERT): "", client_of(ANNA): "", OTHER: "", "press-7": ""}
        for client_id, expected in ids.items():
            request = {"requestId": f"r-{client_id}", "as": SCANNER, "clientId": client_id, "command": "health"}
            gateway.send(request)
            answer, _ = gateway.receive()
            assert code_of(answer) == (expected or "ERR_FORBIDDEN"), answer


def test_quotas_apply_to_each_principal(make_daemon: MakeDaemon) -> None:
    limits = {"userLeases": 1, "userStoredBytes": 2000, "userWaits": 1}
    daemon = make_daemon(config={"gateway": {"users": ME}, "limits": limits}).start()
    with Gateway(daemon) as gateway:
        for _ in range(3):
            gateway.ask("publish", {"queue": "q", "message": "x"})  # as root, who has no quotas
        assert gateway.code(SCANNER, "consume_next", {"queue": "q"}) == "OK"
        assert gateway.code(SCANNER, "consume_next", {"queue": "q"}) == "ERR_QUOTA_EXCEEDED"
        assert gateway.code(OTHER, "consume_next", {"queue": "q"}) == "OK"
        large = {"queue": "q", "message": "x" * 1500}
        assert [gateway.code(SCANNER, "publish", large) for _ in range(2)] == ["OK", "ERR_QUOTA_EXCEEDED"]
        gateway.begin("token:w", "consume_next", {"queue": "w", "waitMs": 3_600_000})
        assert gateway.code("token:w", "consume_next", {"queue": "w", "waitMs": 1}) == "ERR_QUOTA_EXCEEDED"


def test_quotas_name_principals_and_users(make_daemon: MakeDaemon) -> None:
    quotas = [
        {"who": [f"{NAMES} {SCANNER}"], "leases": 3},
        {"who": [f"{NAMES} token:*"], "leases": 1, "storedBytes": 2000},
        {"who": ["everyone"], "waits": 1},
    ]
    config = {"gateway": {"users": ME}, "quotas": quotas, "limits": {"userLeases": 2, "userWaits": 0}}
    daemon = make_daemon(config=config).start()

    def leased(gateway: Gateway, principal: str) -> int:
        codes = [gateway.code(principal, "consume_next", {"queue": "q"}) for _ in range(4)]
        assert set(codes[codes.count("OK") :]) == {"ERR_QUOTA_EXCEEDED"}
        return codes.count("OK")

    with Gateway(daemon) as gateway:
        for _ in range(20):
            gateway.ask("publish", {"queue": "q", "message": "x"})
        assert [leased(gateway, one) for one in (SCANNER, OTHER, "cert:maria")] == [3, 1, 2]
        large = {"queue": "q", "message": "x" * 1500}
        assert [gateway.code(SCANNER, "publish", large) for _ in range(2)] == ["OK", "ERR_QUOTA_EXCEEDED"]
        assert [gateway.code("cert:maria", "publish", large) for _ in range(2)] == ["OK", "OK"]
        gateway.begin("cert:w", "consume_next", {"queue": "w", "waitMs": 3_600_000})
        answer = gateway.of("cert:w", "consume_next", {"queue": "w", "waitMs": 1})
        assert code_of(answer) == "ERR_QUOTA_EXCEEDED" and "quotas" in answer["error"]["message"]
        quotas[0]["leases"] = 4
        (daemon.root / "config.json").write_text(json.dumps(config))
        daemon.process.send_signal(signal.SIGHUP)
        consume = {"queue": "q"}
        daemon.wait(lambda: gateway.code(SCANNER, "consume_next", consume) == "OK", "a reload applies other quotas")


def test_one_who_waits_under_the_name_of_a_principal_is_judged_by_it_when_a_message_arrives(
    make_daemon: MakeDaemon,
) -> None:
    access = {"rules": [{"who": [f"{NAMES} {SCANNER}"], "allow": ["consume"]}], "default": []}
    daemon = make_daemon(config={"gateway": {"users": ME}, "access": access}).start()
    with Gateway(daemon) as gateway:
        waiting = gateway.begin(SCANNER, "consume_next", {"queue": "q", "waitMs": 3_600_000})
        assert gateway.code(OTHER, "consume_next", {"queue": "q", "waitMs": 1}) == "ERR_FORBIDDEN"
        daemon.publish("q")
        answer, _ = gateway.receive()
        assert answer["requestId"] == waiting and answer["data"]["message"]["queue"] == "q"
    assert daemon.events("leased")[0]["principal"] == SCANNER
