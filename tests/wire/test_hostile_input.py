"""What no client should write: each is answered, or set aside with a reason, and the next good request is served."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.wire.daemon import Daemon, Sent

MEBIBYTE = 1024 * 1024


def still_serves(daemon: Daemon) -> None:
    """A good request behind the bad one has its answer."""
    key = daemon.publish("good", "still here")
    assert daemon.consume("good")["message"]["messageKey"] == key


def envelope(**fields: object) -> bytes:
    whole = {"requestId": "bad-1", "clientId": "bad", "command": "status", "payload": {"queue": "q"}, **fields}
    return json.dumps({name: value for name, value in whole.items() if value is not Ellipsis}).encode()


# --- bytes that are no request ---------------------------------------------------------------------------------------

GOOD = '"requestId":"bad-1","clientId":"bad","command":"publish"'
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"publish, please", "JSON"),
    "nothing": (b"", "JSON"),
    "NUL bytes": (bytes(4096), "JSON"),
    "half a request": (envelope()[:-9], "JSON"),
    "a request and more": (envelope() + b"{}", "JSON"),
    "a list": (b"[" + envelope() + b"]", "object"),
    "100,000 levels": (b"[" * 100_000 + b"]" * 100_000, "JSON"),
    "100,000 levels inside a request": (
        b'{%s,"payload":{"queue":"q","message":%s1%s}}' % (GOOD.encode(), b"[" * 100_000, b"]" * 100_000),
        "JSON",
    ),
    "100,000 objects, never closed": (b'{"a":' * 100_000, "JSON"),
    "NaN": (b'{%s,"payload":{"queue":"q","message":NaN}}' % GOOD.encode(), "JSON"),
    "infinity": (b'{%s,"payload":{"queue":"q","message":-Infinity}}' % GOOD.encode(), "JSON"),
    "1e999": (b'{%s,"payload":{"queue":"q","message":1e999}}' % GOOD.encode(), "JSON"),
    "an integer of 5000 digits": (
        b'{%s,"payload":{"queue":"q","message":%s}}' % (GOOD.encode(), b"9" * 5000),
        "JSON",
    ),
    "a key twice": (b'{%s,"payload":{"queue":"q","queue":"r"}}' % GOOD.encode(), "twice"),
    "a key twice, spelled differently": (b'{%s,"payload":{"queue":"q","qu\\u0065ue":"r"}}' % GOOD.encode(), "twice"),
    "the client twice": (b'{"clientId":"other",%s}' % GOOD.encode(), "twice"),
    "a lone surrogate": (b'{%s,"payload":{"queue":"q","message":"\\ud800"}}' % GOOD.encode(), "JSON"),
    "bytes that are no UTF-8": (b'{%s,"payload":{"queue":"q","message":"\xff"}}' % GOOD.encode(), "JSON"),
    "no requestId": (envelope(requestId=...), "requestId"),
    "no clientId": (envelope(clientId=...), "clientId"),
    "an id that is a number": (envelope(requestId=7), "requestId"),
    "an id that leads out": (envelope(requestId="../../../escaped"), "requestId"),
    "a client that leads out": (envelope(clientId="../escaped"), "clientId"),
    "a client that is the parent": (envelope(clientId=".."), "clientId"),
    "an absolute id": (envelope(requestId="/escaped"), "requestId"),
    "an id with a NUL": (envelope(requestId="a\x00b"), "requestId"),
    "an id with a newline": (envelope(clientId="a\n"), "clientId"),
    "an id of 129 characters": (envelope(requestId="x" * 129), "requestId"),
}


def test_an_invalid_request_is_rejected_with_a_reason_and_its_bytes(daemon: Daemon) -> None:
    names = {what: daemon.put(data) for what, (data, _) in UNREADABLE.items()}
    still_serves(daemon)
    for what, (data, said) in UNREADABLE.items():
        assert said in daemon.reason(names[what]), what
        assert (daemon.dead / names[what]).read_bytes() == data, what
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "all files are gone")
    assert sorted(p.name for p in daemon.responses.iterdir()) == ["wire"], "somebody was answered"
    assert not list(daemon.root.parent.rglob("*escaped*"))
    assert daemon.ask("metrics")["mailbox"]["dead"] == len(UNREADABLE)
    still_serves(daemon)


def test_invalid_requests_do_not_block_valid_ones(daemon: Daemon) -> None:
    """A file that does not parse is left for two seconds; nobody behind it waits so long."""
    daemon.freeze()
    invalid = [daemon.put(b"not yet whole") for _ in range(50)]
    valid = daemon.send("publish", {"queue": "behind", "message": "x"})
    daemon.thaw()
    for name in invalid:
        daemon.reason(name)
    answered_ns = daemon.answer_path(valid).stat().st_ctime_ns
    assert answered_ns < min((daemon.dead / name).stat().st_ctime_ns for name in invalid)
    assert daemon.answer(valid)["ok"]


# --- requests with sound ids that are wrong --------------------------------------------------------------------------

REFUSED: dict[str, tuple[bytes, str]] = {
    "no command": (envelope(command=...), "ERR_INVALID_REQUEST"),
    "a command that is a list": (envelope(command=["status"]), "ERR_PARSE_ERROR"),
    "an unknown command": (envelope(command="shutdown"), "ERR_UNKNOWN_COMMAND"),
    "a payload that is text": (envelope(payload="{}"), "ERR_PARSE_ERROR"),
    "a deadline that is text": (envelope(deadlineMs="soon"), "ERR_PARSE_ERROR"),
    "a deadline that has passed": (envelope(deadlineMs=1), "ERR_TIMEOUT"),
    "no queue": (envelope(payload={}), "ERR_INVALID_REQUEST"),
    "a queue that is a number": (envelope(payload={"queue": 1}), "ERR_INVALID_REQUEST"),
    "a queue without a name": (envelope(payload={"queue": ""}), "ERR_INVALID_REQUEST"),
    "a queue of 257 bytes": (envelope(payload={"queue": "\u00fc" * 129}), "ERR_INVALID_REQUEST"),
    "a queue with a newline": (envelope(payload={"queue": "a\nb"}), "ERR_INVALID_REQUEST"),
    "a priority that is text": (
        envelope(command="publish", payload={"queue": "q", "priority": "high"}),
        "ERR_PARSE_ERROR",
    ),
    "a priority that is a fraction": (
        envelope(command="publish", payload={"queue": "q", "priority": 1.5}),
        "ERR_PARSE_ERROR",
    ),
    "a priority beyond 64 bits as a float": (
        envelope(command="publish", payload={"queue": "q", "priority": 1e300}),
        "ERR_PARSE_ERROR",
    ),
    "a priority beyond 32 bits": (
        envelope(command="publish", payload={"queue": "q", "priority": 2**31}),
        "ERR_INVALID_REQUEST",
    ),
    "a negative delay": (envelope(command="publish", payload={"queue": "q", "delayMs": -1}), "ERR_INVALID_REQUEST"),
    "a wait of a year": (
        envelope(command="consume_next", payload={"queue": "q", "waitMs": 10**11}),
        "ERR_INVALID_REQUEST",
    ),
    "a lease of no time": (
        envelope(command="consume_next", payload={"queue": "q", "visibilityTimeoutSec": 0}),
        "ERR_INVALID_REQUEST",
    ),
    "text that is not base64": (
        envelope(command="publish", payload={"queue": "q", "message": "%%%", "encoding": "base64"}),
        "ERR_INVALID_REQUEST",
    ),
    "an encoding that does not exist": (
        envelope(command="publish", payload={"queue": "q", "message": "x", "encoding": "rot13"}),
        "ERR_INVALID_REQUEST",
    ),
    "no message key": (envelope(command="ack", payload={}), "ERR_INVALID_REQUEST"),
    "a flag that is text": (
        envelope(command="nack", payload={"messageKey": "k", "requeue": "true"}),
        "ERR_PARSE_ERROR",
    ),
    "a reason without end": (
        envelope(command="nack", payload={"messageKey": "k", "reason": "x" * 5000}),
        "ERR_INVALID_REQUEST",
    ),
}


def test_a_wrong_request_is_answered_with_its_code_and_changes_nothing(daemon: Daemon) -> None:
    before = len(daemon.events())
    for what, (data, code) in REFUSED.items():
        sent = Sent(daemon.new_name(), "bad-1", "bad", data)
        response = daemon.again(sent)
        assert response["ok"] is False, what
        assert response["error"]["code"] == code, (what, response)
        assert response["error"]["message"], what
    assert len(daemon.events()) == before
    still_serves(daemon)


def test_a_request_at_the_limit_is_served_and_one_byte_more_is_set_aside(daemon: Daemon) -> None:
    limit = 4 * MEBIBYTE
    empty = daemon.request("publish", {"queue": "q", "message": ""})
    fits = daemon.request("publish", {"queue": "q", "message": "x" * (limit - len(empty.data))})
    fits = Sent(fits.name, fits.request_id, fits.client_id, fits.data[:-3] + b'"}}')
    assert limit - 16 < len(fits.data) <= limit
    assert daemon.again(fits)["ok"]
    name = daemon.put(b" " * (limit + 1 - len(fits.data)) + fits.data)
    assert "larger than" in daemon.reason(name)


def test_a_file_of_ten_megabytes_is_set_aside_unread(daemon: Daemon) -> None:
    before_kb = daemon.resident_kb()
    name = daemon.put(b"[" * (10 * MEBIBYTE))
    assert "larger than 4194304 bytes" in daemon.reason(name)
    still_serves(daemon)
    assert daemon.resident_kb() - before_kb < 4 * 1024


def test_an_expired_deadline_is_answered_and_not_executed(daemon: Daemon) -> None:
    past = int(time.time() * 1000) - 1
    response = daemon.answer(daemon.send("publish", {"queue": "q"}, deadlineMs=past))
    assert response["error"]["code"] == "ERR_TIMEOUT"
    assert daemon.ask("status", queue="q")["exists"] is False


# --- things that are no files ----------------------------------------------------------------------------------------


def make_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a FIFO": (os.mkfifo, "not a regular file"),
    "a socket": (make_socket, "socket"),
    "a symbolic link": (lambda path: path.symlink_to("/etc/hostname"), "symbolic link"),
    "a symbolic link to nothing": (lambda path: path.symlink_to("nothing"), "symbolic link"),
    "a symbolic link to a directory": (lambda path: path.symlink_to("/"), "symbolic link"),
}


def test_a_file_that_is_not_regular_is_rejected_at_once(daemon: Daemon) -> None:
    names = {}
    for number, (what, (make, _)) in enumerate(STRANGE.items()):
        names[what] = f"strange-{number}.json"
        make(daemon.requests / names[what])
    still_serves(daemon)
    for what, (_, said) in STRANGE.items():
        assert said in daemon.reason(names[what]), what
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "all files are gone")


def test_directories_named_like_requests_are_renamed_in_place(daemon: Daemon) -> None:
    for name in ("x.json", "y.json"):
        (daemon.requests / name).mkdir()
        (daemon.requests / name / "inside.json").write_bytes(envelope())
    still_serves(daemon)
    daemon.wait(lambda: not list(daemon.requests.glob("*.json")), "both are renamed")
    left = sorted(daemon.requests.iterdir())
    assert len(left) == 2
    for directory in left:
        assert ".bad-" in directory.name
        assert (directory / "inside.json").read_bytes() == envelope()


def test_a_file_with_two_names_is_set_aside_once_it_is_old(daemon: Daemon) -> None:
    keep = daemon.root / "keep"
    keep.write_bytes(envelope())
    os.link(keep, daemon.requests / "two.json")
    still_serves(daemon)
    assert "hard link" in daemon.reason("two.json")
    assert keep.read_bytes() == envelope()
    assert not (daemon.responses / "bad").exists()


def test_a_file_that_the_daemon_may_not_read_is_set_aside(daemon: Daemon) -> None:
    sent = daemon.request("publish", {"queue": "q"})
    temporary = daemon.requests / "closed.tmp"
    temporary.write_bytes(sent.data)
    temporary.chmod(0)
    temporary.rename(daemon.requests / sent.name)
    if os.geteuid() == 0:  # who may read everything reads this as well
        assert daemon.answer(sent)["ok"]
    else:
        assert "not readable" in daemon.reason(sent.name)
    still_serves(daemon)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_response_directory_that_is_not_a_directory_is_not_followed(daemon: Daemon, kind: str) -> None:
    elsewhere = daemon.root / "elsewhere"
    elsewhere.mkdir()
    box = daemon.responses / "bad"
    box.write_text("a file") if kind == "file" else box.symlink_to(elsewhere)
    name = daemon.put(envelope())
    assert "responses/bad is not a directory" in daemon.reason(name)
    assert list(elsewhere.iterdir()) == []
    still_serves(daemon)


def test_a_response_directory_that_becomes_a_link_while_its_client_waits_is_not_followed(daemon: Daemon) -> None:
    elsewhere = daemon.root / "elsewhere"
    elsewhere.mkdir()
    sent = daemon.send("consume_next", {"queue": "q", "waitMs": 60000}, client_id="moving")
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] >= 1, "it waits")
    box = daemon.responses / "moving"
    box.rmdir()
    box.symlink_to(elsewhere)
    daemon.publish("q")
    assert "response could not be written" in daemon.reason(sent.name)
    assert list(elsewhere.iterdir()) == []


def test_a_response_is_never_written_through_a_link(daemon: Daemon) -> None:
    target = daemon.root / "target"
    target.write_text("untouched")
    sent = daemon.request("publish", {"queue": "q"})
    daemon.answer_path(sent).symlink_to(target)
    daemon.answer_path(sent).with_suffix(".json.tmp").symlink_to(target)
    daemon.put(sent.data, sent.name)
    daemon.wait(lambda: not daemon.answer_path(sent).is_symlink(), "the response replaced the link")
    assert daemon.answer(sent)["ok"]
    assert target.read_text() == "untouched"


# --- names -----------------------------------------------------------------------------------------------------------

NAMES = (
    b"n" * 250 + b".json",
    "\u00fc".encode() * 125 + b".json",
    b"with\nnewline\x1b[31m.json",
    b"no \xff\xfe utf-8.json",
    b"\xff" * 200 + b".json",
    b".json",
    b"-rf.json",
    b" .json",
    b"..json",
)


@pytest.mark.parametrize("good", [True, False], ids=["good content", "bad content"])
def test_strange_names_are_served_or_set_aside_like_any_other(daemon: Daemon, good: bool) -> None:
    for number, name in enumerate(NAMES):
        content = envelope(requestId=f"r{number}") if good else b"bad"
        path = os.fsencode(daemon.requests) + b"/" + name
        with open(os.fsencode(daemon.ipc) + b"/staged", "wb") as file:
            file.write(content)
        os.rename(os.fsencode(daemon.ipc) + b"/staged", path)
    still_serves(daemon)
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "all are gone")
    if good:
        assert len(list((daemon.responses / "bad").iterdir())) == len(NAMES)
    else:

        def kept(are_reasons: bool) -> int:
            return sum(name.endswith(b".reason") is are_reasons for name in os.listdir(os.fsencode(daemon.dead)))

        daemon.wait(lambda: kept(are_reasons=True) == len(NAMES), "each has its reason")
        assert kept(are_reasons=False) == len(NAMES)
    still_serves(daemon)


def test_a_burst_of_large_requests_keeps_its_order_over_the_byte_limit_of_a_group(daemon: Daemon) -> None:
    daemon.freeze()
    for number in range(14):
        body = f"{number:02d}" + "x" * 900_000
        daemon.put(
            envelope(requestId=f"r{number}", command="publish", payload={"queue": "large", "message": body}),
            f"{13 * number % 14}.json",
        )
    daemon.thaw()
    daemon.wait(lambda: not list(daemon.requests.iterdir()), "all are gone")
    published = [event["by"]["request"] for event in daemon.events("published")]
    assert published == [f"r{number}" for number in range(14)]


def test_rejected_requests_are_never_overwritten(daemon: Daemon) -> None:
    for target in ("first", "second", "third"):
        (daemon.requests / "same.json").symlink_to(target)
        daemon.wait(lambda: not os.listdir(daemon.requests), "it is set aside")
    assert sorted(os.readlink(path) for path in daemon.dead.glob("same*.json")) == ["first", "second", "third"]


def test_a_file_that_vanishes_or_changes_under_the_daemon_does_no_harm(daemon: Daemon) -> None:
    daemon.freeze()
    sent = [daemon.request("publish", {"queue": "q", "message": str(number)}) for number in range(40)]
    for one in sent:
        daemon.put(one.data, one.name)
    for one in sent[::2]:
        (daemon.requests / one.name).unlink()
    for one in sent[1::4]:
        daemon.put(one.data, one.name)
    daemon.thaw()
    for one in sent[1::2]:
        assert daemon.answer(one)["ok"]
    assert len(daemon.events("published")) == 20
