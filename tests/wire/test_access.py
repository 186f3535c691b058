"""What rules come to for real users of one mailbox: their requests, what is written of those, and their groups."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.daemon import Daemon, Fields, Sent, receipt
from tests.wire.users import ANNA, BERT, CARL, acting_as, client_of, code, need_root, put_as, send_as

FORBIDDEN = "ERR_FORBIDDEN"
#: Anna has the queues of the line, Bert those of the press; Carl may look.
RULES: Fields = {
    "access": {
        "operators": [],
        "rules": [
            {
                "who": [f"user {ANNA}"],
                "pattern": "line\\..*|dead",
                "allow": ["publish", "consume", "browse", "operate"],
            },
            {"who": [f"user {BERT}"], "pattern": "press\\..*", "allow": ["publish", "consume", "browse", "operate"]},
            {"who": [f"user {CARL}"], "allow": ["browse"]},
        ],
        "default": [],
    }
}
#: Runs a command where the device has these users and groups; its last arguments are the command.
_WITH_ACCOUNTS = 'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/group && shift 2 && exec "$@"'


def ask_as(daemon: Daemon, uid: int, command: str, **payload: Any) -> Fields:
    """The data of a user's request that must succeed."""
    response = daemon.answer(send_as(daemon, uid, command, payload))
    assert response["ok"], response
    data: Fields = response["data"]
    return data


def code_of(daemon: Daemon, uid: int, command: str, **payload: Any) -> str:
    return code(daemon, send_as(daemon, uid, command, payload))


def traffic(daemon: Daemon) -> list[Fields]:
    """All lines of the traffic log that are on the disk."""
    files = sorted((daemon.root / "traffic").glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def with_accounts(directory: Path, passwd: str, group: str) -> tuple[str, ...]:
    """What to put before a command that is to find these users and groups on its device."""
    need_root()
    files = [directory / "passwd", directory / "group"]
    for path, text in zip(files, (passwd, group), strict=True):
        path.write_text(text)
    return ("unshare", "--mount", "sh", "-c", _WITH_ACCOUNTS, "sh", *map(str, files))


PASSWD = f"root:x:0:0:root:/root:/bin/sh\nanna:x:{ANNA}:100::/:/bin/sh\nbert:x:{BERT}:{BERT}::/:/bin/sh\n"


def groups(*members: str) -> str:
    return f"root:x:0:\nusers:x:100:\nmenders:x:5000:{','.join(members)}\npostroom-ops:x:5001:\n"


def test_each_user_has_what_the_rules_give_and_a_refusal_says_what_to_do(make_shared: MakeDaemon) -> None:
    daemon = make_shared(config=RULES).start()
    assert ask_as(daemon, ANNA, "publish", queue="line.a", message="x")["messageKey"]
    refused = daemon.answer(send_as(daemon, BERT, "publish", {"queue": "line.a", "message": "x"}))
    assert refused["error"] == {
        "code": FORBIDDEN,
        "message": f"uid {BERT} may not publish to queue 'line.a': ask the device's owner for a rule (access.rules)"
        " that allows it",
    }
    assert code_of(daemon, CARL, "browse", queue="line.a") == "OK"
    assert code_of(daemon, CARL, "consume_next", queue="line.a") == FORBIDDEN
    assert [one["queue"] for one in ask_as(daemon, CARL, "list_queues")["queues"]] == ["line.a"]
    assert ask_as(daemon, BERT, "list_queues")["queues"] == []


def ways_in(key: str, lease: Fields, dead: str) -> list[tuple[str, Fields]]:
    """What Bert tries to get at Anna's queue ``line.a``: a message there, another one under lease, a dead letter."""
    message = {"queue": "line.a", "message": "mine"}
    to_own: Fields = {"to": "press.a"}
    return [
        ("publish", message),
        ("publish", {**message, "delayMs": 1}),
        ("publish_batch", {"messages": [message]}),
        ("publish_batch", {"queue": "line.a", "messages": [{"message": "mine"}]}),
        ("consume_next", {"queue": "line.a"}),
        ("consume_next", {"queue": "line.a", "max": 10}),
        ("consume_next", {"queue": "line.a", "waitMs": 1000}),
        ("consume_next", {"queue": "line.a.dlq"}),
        ("consume_next", {"queue": "dead"}),
        *((command, lease) for command in ("ack", "nack", "release", "extend_lease")),
        ("ack", {"messageKey": lease["messageKey"], "consumerId": client_of(ANNA)}),
        ("ack_batch", {"items": [lease]}),
        ("nack_batch", {"items": [lease]}),
        ("ack_and_publish", {**lease, "messages": [{"queue": "press.a", "message": "x"}]}),
        ("browse", {"queue": "line.a", "fullBodies": True}),
        ("get_message", {"messageKey": key}),
        ("get_message", {"messageKey": key, "events": 100}),
        ("status", {"queue": "line.a"}),
        ("list_dlq", {"queue": "line.a", "fullBodies": True}),
        ("list_dlq", {"queue": "dead", "fullBodies": True}),
        ("list_inflight", {"queue": "line.a"}),
        ("list_consumers", {"queue": "line.a"}),
        ("reprocess_dlq", {"messageKey": dead}),
        ("reprocess_dlq", {"messageKey": dead, **to_own}),
        ("reprocess_dlq", {"queue": "dead", **to_own}),
        ("drop_dlq", {"queue": "dead"}),
        ("quarantine_dlq", {"messageKey": dead}),
        ("move", {"messageKey": key, **to_own}),
        ("move", {"queue": "line.a", **to_own}),
        ("move", {"queue": "press.a", "to": "line.a"}),
        ("hold", {"messageKey": key}),
        ("purge", {"queue": "line.a"}),
        ("purge", {"queue": "line.a", "state": "dead"}),
        ("pause", {"queue": "line.a"}),
        ("set_policy", {"queue": "line.a", "policy": {"ttlSec": 1}}),
        ("set_policy", {"queue": "press.a", "policy": {"dlq": {"queue": "dead"}}}),
        ("set_policy", {"queue": "press.a", "policy": {"dlq": {"queue": "line.b"}}}),
        ("set_schedule", {"name": "own", "queue": "line.a", "cron": "@every 1s"}),
        ("set_schedule", {"name": "hers", "queue": "press.a", "cron": "@every 1s"}),
        ("delete_schedule", {"name": "hers"}),
        ("drain", {}),
        ("read_state", {"part": "messages"}),
        ("import_state", {"engineMs": 0, "wallMs": 0, "messages": []}),
    ]


def test_no_command_gives_access_to_a_queue_of_another_user(make_shared: MakeDaemon) -> None:
    daemon = make_shared(config=RULES).start()
    ask_as(daemon, ANNA, "set_policy", queue="line.a", policy={"dlq": {"queue": "dead"}})
    ask_as(daemon, ANNA, "set_schedule", name="hers", queue="line.a", cron="0 0 1 1 *")
    ask_as(daemon, ANNA, "publish_batch", queue="line.a", messages=[{"message": "secret"}] * 3)
    dead, held = (ask_as(daemon, ANNA, "consume_next", queue="line.a") for _ in range(2))
    ask_as(daemon, ANNA, "nack", **receipt(dead))
    key = ask_as(daemon, ANNA, "browse", queue="line.a")["messages"][0]["messageKey"]
    ask_as(daemon, BERT, "publish", queue="press.a", message="x", replyTo="line.a", correlationId="line.a")
    before = daemon.events()
    sent = [
        send_as(daemon, BERT, command, payload)
        for command, payload in ways_in(key, receipt(held), dead["message"]["messageKey"])
    ]
    for one in sent:
        response = daemon.answer(one)
        assert "secret" not in json.dumps(response)
        items = response.get("data", {}).get("results", [response])
        assert {item["error"]["code"] for item in items} == {FORBIDDEN}, (one.data, response)
    assert [event["id"] for event in daemon.events()] == [event["id"] for event in before]
    assert "line.a" not in ask_as(daemon, BERT, "metrics", format="prometheus")["text"]


def test_the_files_of_journal_traffic_and_data_do_not_bypass_the_rules(make_shared: MakeDaemon) -> None:
    daemon = make_shared(config=RULES).start()
    ask_as(daemon, ANNA, "publish", queue="line.a", message="secret")
    for directory in ("journal", "traffic", "data", "quarantine", "ipc/dead", "ipc/requests"):
        path = daemon.root / directory
        inside = list(path.iterdir()) if path.exists() else []
        with acting_as(BERT):
            with pytest.raises(OSError):
                os.listdir(path)
            for file in inside:
                with pytest.raises(PermissionError):
                    file.read_bytes()


def test_a_refused_request_has_a_traffic_line_with_its_user_and_a_batch_counts_its_refusals(
    make_shared: MakeDaemon,
) -> None:
    daemon = make_shared("--traffic-sample-every", "1000000", config=RULES).start()
    assert code_of(daemon, BERT, "consume_next", queue="line.a") == FORBIDDEN
    messages = [{"queue": queue, "message": "x"} for queue in ("line.a", "press.a", "line.b")]
    ask_as(daemon, BERT, "publish_batch", messages=messages)
    daemon.stop()
    lines = [{name: line.get(name) for name in ("uid", "command", "code", "refusals")} for line in traffic(daemon)]
    assert lines == [
        {"uid": BERT, "command": "consume_next", "code": FORBIDDEN, "refusals": None},
        {"uid": BERT, "command": "publish_batch", "code": "OK", "refusals": 2},
    ]


def test_repeated_refusals_of_a_user_have_few_lines_and_are_all_counted(make_shared: MakeDaemon) -> None:
    daemon = make_shared("--traffic-refusals-per-minute", "5", config=RULES).start()
    sent = [send_as(daemon, BERT, "browse", {"queue": "line.a"}) for _ in range(40)]
    sent += [send_as(daemon, CARL, "publish", {"queue": "line.a"}) for _ in range(3)]
    assert {code(daemon, one) for one in sent} == {FORBIDDEN}
    metrics = daemon.ask("metrics")
    assert (metrics["errorCodes"][FORBIDDEN], metrics["trafficLinesHeldBack"]) == (43, 35)
    daemon.stop()
    uids = [line["uid"] for line in traffic(daemon) if line["code"] == FORBIDDEN]
    assert (uids.count(BERT), uids.count(CARL)) == (5, 3)


def test_a_request_under_the_client_id_of_another_user_is_logged_with_its_sender(make_shared: MakeDaemon) -> None:
    daemon = make_shared().start()
    ask_as(daemon, ANNA, "publish", queue="q", message="x")
    forged = daemon.request("purge", {"queue": "q"}, client_id=client_of(ANNA))
    put_as(daemon, BERT, forged)
    assert "belongs to another user" in daemon.reason(forged.name)
    assert daemon.ask("metrics")["errorCodes"] == {FORBIDDEN: 1}
    daemon.stop()
    line = next(line for line in traffic(daemon) if line["code"] == FORBIDDEN)
    assert (line["uid"], line["client"], line["command"], line["request"]) == (
        BERT,
        client_of(ANNA),
        "purge",
        forged.request_id,
    )
    assert not daemon.answer_path(forged).exists()


def test_a_registered_client_id_belongs_to_its_user_even_if_another_made_its_response_directory(
    make_shared: MakeDaemon,
) -> None:
    daemon = make_shared(config={"clients": {"press-7": str(ANNA)}}).start()
    taken = daemon.request("publish", {"queue": "q", "message": "x"}, client_id="press-7")
    put_as(daemon, BERT, taken)
    answer = daemon.answer(taken)
    assert answer["error"]["message"] == (
        f"client id press-7 is registered for another user, not for uid {BERT}: use another client id"
    )
    owners = daemon.request("publish", {"queue": "q", "message": "x"}, client_id="press-7")
    put_as(daemon, ANNA, owners)
    assert "belongs to another user" in daemon.reason(owners.name)
    found = json.loads(daemon.tool("check-permissions", "--several-users", "--json").stdout)["findings"]
    reported = {one["path"]: one for one in found if one["kind"] == "client"}
    assert reported[str(daemon.responses / "press-7")]["problem"] == (
        f"is registered for user {ANNA}, but belongs to {BERT}"
    )
    refused = daemon.tool("add-client", "press-7", "--user", str(BERT))
    assert b"client id press-7 is registered for user %d" % ANNA in refused.stderr
    (daemon.responses / "press-7").rmdir()
    put_as(daemon, ANNA, owners)
    assert code(daemon, owners) == "OK"


def test_an_answer_is_not_written_to_a_response_directory_that_has_become_another_users(
    make_shared: MakeDaemon,
) -> None:
    daemon = make_shared().start()
    waiting = send_as(daemon, ANNA, "consume_next", {"queue": "q", "waitMs": 600_000})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "she waits")
    box = daemon.responses / client_of(ANNA)
    with acting_as(ANNA):
        box.rmdir()
    with acting_as(BERT):
        box.mkdir()
        box.chmod(0o770)
    daemon.publish("q", "secret")
    assert "now belongs to another user" in daemon.reason(waiting.name)
    assert not list(box.iterdir())
    with acting_as(BERT):
        box.rmdir()
    put_as(daemon, ANNA, waiting)
    assert daemon.answer(waiting)["data"]["message"]["payload"] == "secret"


def test_a_reload_replaces_the_rules_for_new_and_waiting_requests(make_shared: MakeDaemon) -> None:
    daemon = make_shared(config=RULES).start()
    waiting = send_as(daemon, ANNA, "consume_next", {"queue": "line.a", "waitMs": 600_000})
    daemon.wait(lambda: daemon.ask("metrics")["mailbox"]["parked"] == 1, "she waits")

    def reload(rules: Fields, reported: str) -> None:
        seen = daemon.log().count(reported)
        (daemon.root / "config.json").write_text(json.dumps(rules))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait(lambda: daemon.log().count(reported) > seen, "it was reloaded")

    reload({"access": {"rules": RULES["access"]["rules"]}}, "reload refused")
    assert code_of(daemon, BERT, "publish", queue="line.b") == FORBIDDEN
    swapped = (
        json.dumps(RULES).replace(str(ANNA), "0").replace(str(BERT), str(ANNA)).replace('"user 0"', f'"user {BERT}"')
    )
    reload(json.loads(swapped), "reloaded: access and clients")
    assert code_of(daemon, BERT, "publish", queue="line.a") == "OK"
    assert code(daemon, waiting) == FORBIDDEN
    assert code_of(daemon, ANNA, "publish", queue="line.a") == FORBIDDEN
    assert ask_as(daemon, BERT, "consume_next", queue="line.a")["message"]


def test_primary_and_supplementary_groups_count(make_shared: MakeDaemon, tmp_path: Path) -> None:
    rules = [
        {"who": ["group users"], "queue": "of users", "allow": ["publish"]},
        {"who": ["group 5000"], "queue": "of menders", "allow": ["publish"]},
        {"who": ["user bert"], "queue": "of bert", "allow": ["publish"]},
    ]
    config = {"access": {"rules": rules, "default": []}}
    many = "".join(f"g{number}:x:{6000 + number}:bert\n" for number in range(200))  # more than are asked for at first
    daemon = make_shared(config=config, wrapper=with_accounts(tmp_path, PASSWD, many + groups("bert"))).start()

    def may(uid: int) -> list[str]:
        queues = ("of users", "of menders", "of bert")
        return [queue for queue in queues if code_of(daemon, uid, "publish", queue=queue) == "OK"]

    assert {uid: may(uid) for uid in (ANNA, BERT, CARL)} == {
        ANNA: ["of users"],
        BERT: ["of menders", "of bert"],
        CARL: [],  # the device does not know him
    }


def test_members_of_postroom_ops_operate_without_any_configuration(make_shared: MakeDaemon, tmp_path: Path) -> None:
    group = groups().replace("postroom-ops:x:5001:", "postroom-ops:x:5001:anna")
    daemon = make_shared(wrapper=with_accounts(tmp_path, PASSWD, group)).start()
    assert code_of(daemon, BERT, "publish", queue="q") == "OK"
    assert code_of(daemon, ANNA, "pause", queue="q") == "OK"
    assert code_of(daemon, ANNA, "drain", draining=False) == "OK"
    assert code_of(daemon, BERT, "resume", queue="q") == FORBIDDEN


_JOINING = """
import sys
from pathlib import Path
from postroom_daemon.policy.access import REFRESH_MS, Access
from postroom_daemon.config.access_file import read_access
from postroom_daemon.policy.access_rules import Verb

uid, group, joined = int(sys.argv[1]), Path("/etc/group"), sys.argv[2]
rule = {"who": ["group menders"], "allow": ["publish"]}
access = Access(read_access({"access": {"rules": [rule], "default": []}}, "file"), daemon_uid=1)
access.refresh(10**9)
told = [access.may(uid, Verb.PUBLISH, "q")]
group.write_text(joined)
for now in (10**9 + REFRESH_MS - 1, 10**9 + REFRESH_MS):
    access.refresh(now)
    if now % REFRESH_MS == 10**9 % REFRESH_MS:
        while access.may(uid, Verb.PUBLISH, "q") == told[0]:
            access.refresh(now)  # it is looked up beside the work
    told.append(access.may(uid, Verb.PUBLISH, "q"))
print(told)
"""


def test_a_user_who_joins_a_group_has_its_rights_within_a_minute(tmp_path: Path) -> None:
    begin = with_accounts(tmp_path, PASSWD, groups())
    command = [*begin, sys.executable, "-c", _JOINING, str(ANNA), groups("anna")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[False, False, True]"
    with_accounts(tmp_path, PASSWD, groups("anna"))
    done = subprocess.run([*command[:-1], groups()], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[True, True, False]"


def test_a_repeat_is_answered_only_for_the_user_of_the_first_request(make_shared: MakeDaemon) -> None:
    daemon = make_shared(config=RULES).start()
    ask_as(daemon, ANNA, "publish", queue="line.a", message="secret")
    first = send_as(daemon, ANNA, "consume_next", {"queue": "line.a"})
    assert daemon.answer(first)["data"]["message"]["payload"] == "secret"
    copied = Sent("copy.json", first.request_id, first.client_id, first.data)
    put_as(daemon, BERT, copied)
    assert "belongs to another user" in daemon.reason(copied.name)
