"""The lane when its peers, or the machine, mean harm: floods, descriptors, the socket's name and permissions."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom_client import Client
from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon
from tests.wire.frame_mutations import send_mutated_frames
from tests.wire.lane import LaneClient, frame
from tests.wire.users import ANNA, acting_as, client_of

WAIT = {"queue": "w", "waitMs": 3_600_000}


def cpu_s(daemon: Daemon) -> float:
    """CPU that the daemon has used."""
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mode_of(daemon: Daemon) -> int:
    return stat.S_IMODE((daemon.ipc / "lane.sock").stat().st_mode)


@contextlib.contextmanager
def descriptors(daemon: Daemon, further: int) -> Iterator[None]:
    """Let a daemon open only so many further descriptors."""
    pid = daemon.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + further, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


# --- floods -----------------------------------------------------------------------------------------------------------


def test_a_flood_on_one_connection_leaves_the_others_their_turn(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc, "flood") as flood, LaneClient(daemon.ipc, "other") as other:
        daemon.freeze()
        publish = {"command": "publish", "payload": {"queue": "q", "message": "x"}}
        flood.socket.sendall(b"".join(frame({"requestId": f"r{number}", **publish}) for number in range(600)))
        other.request("publish", {"queue": "q", "message": "x"})
        daemon.thaw()
        assert other.receive()[0]["ok"]
        for _ in range(600):
            assert flood.receive()[0]["ok"]
    clients = [event["by"]["client"] for event in daemon.events("published")]
    assert clients.index("other") < 260


def test_connections_beyond_those_of_one_turn_come_first_in_the_next(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"limits": {"groupRequests": 4}}).start()
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(LaneClient(daemon.ipc, f"c{number}")) for number in range(12)]
        daemon.freeze()
        for client in clients:
            for _ in range(3):
                client.request("publish", {"queue": "q", "message": "x"})
        daemon.thaw()
        for client in clients:
            for _ in range(3):
                assert client.receive()[0]["ok"]
    senders = [event["by"]["client"] for event in daemon.events("published")]
    assert {len(set(senders[at : at + 12])) for at in (0, 12, 24)} == {12}


def test_a_flood_of_cancels_leaves_the_others_their_turn(daemon: Daemon) -> None:
    with LaneClient(daemon.ipc, "flood") as flood, LaneClient(daemon.ipc, "other") as other:
        daemon.freeze()
        publish = {"requestId": "r", "command": "publish", "payload": {"queue": "q", "message": "x"}}
        flood.socket.sendall(frame({"cancel": "nothing"}) * 1500 + frame(publish))
        other.request("publish", {"queue": "q", "message": "x"})
        daemon.thaw()
        assert other.receive()[0]["ok"] and flood.receive()[0]["ok"]
    assert [event["by"]["client"] for event in daemon.events("published")] == ["other", "flood"]


def test_a_cancel_is_read_although_all_requests_of_a_connection_are_in_flight(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"requests": 3}}).start()
    with LaneClient(daemon.ipc) as client:
        waits = [client.request("consume_next", WAIT) for _ in range(3)]
        daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 3, "all wait")
        for waiting in waits[1:]:
            client.send(b'{ "canc\\u0065l" : "%b" }' % waiting.encode())
            answer, _ = client.receive()
            assert (answer["requestId"], answer["data"]) == (waiting, {"message": None})
        assert client.ask("publish", {"queue": "q", "message": "x"})


def test_many_connections_of_many_sizes_cost_bounded_memory(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"lane": {"userBytes": 2**21, "userConnections": 10_000, "connections": 400}}).start()
    before_kb = daemon.resident_kb()
    half = frame({"requestId": "r", "command": "publish", "payload": {"queue": "q", "bodyBytes": 2**21}}, b"x" * 2**21)
    with contextlib.ExitStack() as opened:
        for number in range(600):
            peer = opened.enter_context(socket.socket(socket.AF_UNIX))
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                peer.connect(str(daemon.ipc / "lane.sock"))
                peer.send(frame({"hello": {"versions": [1], "clientId": f"c{number}"}}))
                peer.send(half[: 50_000 if number % 2 else 9])
        daemon.wait(
            lambda: 50 < daemon.ask("metrics")["lane"]["connections"] <= 400, "many are connected, none too many"
        )
        assert daemon.resident_kb() - before_kb < 30_000
    daemon.wait(lambda: daemon.ask("metrics")["lane"]["connections"] == 0, "all are gone")


def test_frames_that_are_nearly_right_harm_nobody(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(config={"gateway": {"users": str(os.geteuid())}}).start()
    seen = send_mutated_frames(daemon, 400, seed=1)
    assert seen["connections refused"] > 10


# --- descriptors ------------------------------------------------------------------------------------------------------


def test_without_descriptors_those_who_are_connected_are_served_and_the_others_wait(daemon: Daemon) -> None:
    def lacked() -> int:
        return daemon.log().count("lane: [Errno 24]")

    def refused() -> int:  # each frees a descriptor for the next
        return int(served.ask("metrics", {})["lane"]["refused"])

    with LaneClient(daemon.ipc) as served, contextlib.ExitStack() as opened:
        with descriptors(daemon, 2):
            peers = [opened.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(6)]
            for peer in peers:
                peer.connect(str(daemon.ipc / "lane.sock"))
                with contextlib.suppress(ConnectionError):  # it may be refused by now
                    peer.sendall(frame({"hello": {"versions": [1], "clientId": "c"}}))
            daemon.wait(lambda: lacked() or refused(), "there are no more descriptors")
            used_s = cpu_s(daemon)
            daemon.wait(lambda: lacked() >= 3 or refused() >= 4, "it tries again, once a second")
            assert cpu_s(daemon) - used_s < 0.5
            assert served.ask("health", {})
        answered = 0
        for peer in peers:
            peer.settimeout(60)
            with contextlib.suppress(ConnectionError):  # one that was refused
                assert peer.recv(1 << 16)
                answered += 1
        assert answered >= 2


# --- the name of the socket, and its permissions ----------------------------------------------------------------------


@pytest.mark.parametrize("put", ["nothing", "file", "link", "socket"])
def test_a_socket_that_is_removed_or_replaced_is_made_again(daemon: Daemon, put: str) -> None:
    path = daemon.ipc / "lane.sock"
    with LaneClient(daemon.ipc) as connected:
        path.unlink()
        if put == "file":
            path.write_text("x")
        elif put == "link":
            path.symlink_to(daemon.root / "elsewhere")
        elif put == "socket":
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(path))
        daemon.wait(lambda: "lane.sock was removed or replaced" in daemon.log(), "the daemon notices")
        daemon.wait(path.is_socket, "there is a socket again")
        with LaneClient(daemon.ipc, "another") as client:
            assert client.ask("publish", {"queue": "q", "message": "x"})
        assert connected.ask("status", {"queue": "q"})["metrics"]["ready"] == 1
    with Client(str(daemon.ipc), transport="lane") as by_library:
        assert by_library.health()["status"] == "ok"


def test_a_directory_in_the_place_of_the_socket_harms_nobody_who_is_connected(daemon: Daemon) -> None:
    path = daemon.ipc / "lane.sock"
    with LaneClient(daemon.ipc) as connected:
        path.unlink()
        path.mkdir()
        (path / "file").write_text("x")
        daemon.wait(lambda: "lane: [Errno" in daemon.log(), "the daemon reports it")
        assert connected.ask("health", {})
        with Client(str(daemon.ipc)) as by_file:
            assert by_file.health()["status"] == "ok"
        shutil.rmtree(path)
        daemon.wait(path.is_socket, "there is a socket again")


def test_the_permissions_of_the_socket_follow_those_of_the_requests(make_shared: MakeDaemon) -> None:
    daemon = make_shared().start()
    assert mode_of(daemon) == 0o622
    daemon.requests.chmod(0o3730)
    daemon.wait(lambda: mode_of(daemon) == 0o620, "others are shut out")
    with acting_as(ANNA), pytest.raises(PermissionError):
        LaneClient(daemon.ipc)
    os.chown(daemon.requests, -1, ANNA)
    daemon.wait(lambda: (daemon.ipc / "lane.sock").stat().st_gid == ANNA, "the group has changed")
    with acting_as(ANNA), LaneClient(daemon.ipc, client_of(ANNA)) as client:
        assert client.ask("health", {})


def test_a_group_that_an_access_control_list_shuts_out_is_shut_out_of_the_lane(make_shared: MakeDaemon) -> None:
    daemon = make_shared()
    daemon.requests.chmod(0o700)
    os.chown(daemon.requests, -1, ANNA)
    user_obj, user, group_obj, mask, other = 1, 2, 4, 0x10, 0x20
    nobody = 2**32 - 1
    entries = [(user_obj, 7, nobody), (user, 7, 4103), (group_obj, 0, nobody), (mask, 7, nobody), (other, 0, nobody)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(daemon.requests, "system.posix_acl_access", acl)
    assert stat.S_IMODE(daemon.requests.stat().st_mode) == 0o770  # the bits of the group are those of the mask
    daemon.start()
    assert mode_of(daemon) == 0o600
    with acting_as(ANNA), pytest.raises(PermissionError):
        LaneClient(daemon.ipc)
