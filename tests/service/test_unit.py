"""The unit under systemd as PID 1: start, traffic of several users, reload, watchdog, stop; and how closed it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from postroom_daemon.maintenance.system.setup import SHARE
from tests.service.machine import MachineError
from tests.service.running_service import CONFIGURATION, IPC, ROOT, UNIT, RunningService

#: The highest exposure that `systemd-analyze security` may tell.
EXPOSURE: Final = 0.6
#: Publishes one message after the other until the service stops, and says what was acknowledged.
PUBLISHER: Final = """\
import sys
sys.path.insert(0, "/opt/postroom/lib")
from postroom_client import Client, PostroomError
client = Client("/var/lib/postroom/ipc", timeout=2.0)
try:
    while True:
        print(client.publish("load", "x")["messageKey"], flush=True)
except PostroomError:
    pass
"""

#: A request as the C++ tools write it, who know neither locks nor groups.
CPP_REQUEST: Final = f"""\
umask 022
mkdir -p {IPC}/responses/$1
cat >{IPC}/requests/$1.$2.json.tmp
mv {IPC}/requests/$1.$2.json.tmp {IPC}/requests/$1.$2.json
"""


def test_the_unit_has_a_low_exposure() -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    analyze = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(SHARE / "postroomd.service")]
    reported = subprocess.run(analyze, capture_output=True, text=True).stdout
    exposure = re.search(r"Overall exposure level for postroomd.service: (\d+\.\d)", reported)
    assert exposure, reported
    assert float(exposure[1]) <= EXPOSURE, reported


def test_packaging_has_the_files_that_are_installed() -> None:
    packaging = Path(__file__).resolve().parents[2] / "packaging"
    links = [path for path in packaging.rglob("*") if path.is_symlink() and SHARE in path.resolve().parents]
    assert {path.resolve() for path in links} == set(SHARE.iterdir())


@pytest.mark.parametrize("script", ["postroomd.openrc", "postroomd.runit", "postroomd.runit-log"])
def test_the_scripts_for_other_systems_are_valid(script: str) -> None:
    subprocess.run(["sh", "-n", SHARE / script], check=True)
    assert os.access(SHARE / script, os.X_OK)


def test_systemd_knows_every_directive_of_the_unit(served: RunningService) -> None:
    checked = served.machine.ask("systemd-analyze", "verify", "--man=no", UNIT)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_clients_of_several_users_send_and_receive(served: RunningService) -> None:
    keys = {served.publish("anna", "several"), served.publish("bert", "several")}
    received = {served.postroom("bert", "consume", "--queue", "several")["message"]["messageKey"] for _ in keys}
    assert received == keys


def test_a_user_in_no_group_cannot_reach_the_mailbox(served: RunningService) -> None:
    with pytest.raises(MachineError, match="Permission denied"):
        served.publish("otto", "several")


def test_clients_neither_see_nor_touch_files_of_others(served: RunningService) -> None:
    served.publish("anna", "private")
    box = served.machine.run("find", f"{IPC}/responses", "-user", "anna").split()[0]
    served.machine.run(
        "install", "-o", "anna", "-g", "postroom", "-m", "0640", "/dev/null", f"{IPC}/requests/a.json.tmp"
    )
    for command in (
        f"ls {IPC}/requests",
        f"ls {IPC}/responses",
        f"ls {box}",
        f"mv {box} {box}.mine",
        f"cat {IPC}/requests/a.json.tmp",
        f"rm -f {IPC}/requests/a.json.tmp",
        f"cat {ROOT}/journal/*",
        f"ls {ROOT}/data",
        f"touch {ROOT}/x",
    ):
        assert served.machine.ask("sh", "-c", command, user="bert").returncode, command


def test_technicians_read_journal_and_traffic_and_change_neither(served: RunningService) -> None:
    key = served.publish("anna", "watched")
    assert key in [event.get("key") for event in served.events()]
    traffic = ("sh", "-c", f"cat {ROOT}/traffic/*.jsonl")
    served.machine.until(lambda: '"queue":"watched"' in served.machine.run(*traffic, user="tess"), "traffic is read")
    assert served.machine.ask("sh", "-c", f"echo >> {ROOT}/journal/*1.jsonl", user="tess").returncode
    assert served.machine.ask("ls", f"{ROOT}/data", user="tess").returncode


def test_every_restriction_of_the_unit_is_in_force(served: RunningService) -> None:
    status = served.machine.run("cat", f"/proc/{served.pid}/status")
    for line in ("CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    limits = served.machine.run("cat", f"/proc/{served.pid}/limits")
    assert re.search(r"Max open files +4096 ", limits)
    assert re.search(r"Max core file size +0 ", limits)
    inside = ["nsenter", f"--target={served.pid}", "--mount", "--net", "--ipc"]
    served.machine.write("/root/secret", "")
    served.machine.run("mknod", "/dev/secret", "c", "1", "3")
    for command in (
        "touch /etc/x",
        "touch /var/lib/x",
        "ls /root/secret",
        "test -e /dev/secret",
        "touch /sys/fs/cgroup/x",
    ):
        ended = served.machine.ask(*inside, "sh", "-c", command)
        assert ended.returncode, f"{command}: {ended.stdout}"
    for namespace in ("net", "ipc", "mnt"):
        ours = served.machine.run("readlink", f"/proc/{served.pid}/ns/{namespace}")
        assert ours != served.machine.run("readlink", f"/proc/1/ns/{namespace}")
    assert served.shows("MemoryMax") == str(512 * 2**20)


@pytest.mark.parametrize("backend", ["filesystem", "hybrid"])
def test_every_store_works_within_the_restrictions(served: RunningService, backend: str) -> None:
    before = served.publish("anna", backend)
    _migrate(served, backend)
    messages = json.dumps([{"queue": backend, "message": "x" * 2000}] * 300)
    served.machine.run("postroom", "publish-batch", "--ipc-root", IPC, "--messages", "-", user="anna", given=messages)
    one = served.postroom("bert", "consume", "--queue", backend, "--consumer-id", "c")["message"]
    assert one["messageKey"] == before
    served.postroom("bert", "ack", "--message-key", before, "--consumer-id", "c")
    served.postroom("bert", "consume", "--queue", backend, "--max", "100")
    served.machine.run("systemctl", "restart", UNIT)
    counts = served.postroom("anna", "status", "--queue", backend)["metrics"]
    assert (counts["ready"], counts["inflight"]) == (200, 100)
    health = served.postroom("anna", "health")
    assert (health["status"], health["backend"]) == ("ok", backend)
    assert "not permitted" not in served.log()
    served.machine.run("postroomd", "verify", "--root", ROOT, user="postroom")
    _migrate(served, "sqlite")


def test_schemas_waits_delays_and_backups_work_within_the_restrictions(served: RunningService) -> None:
    schema = {"type": "object", "properties": {"id": {"pattern": "^[a-z]+-[0-9]+$"}}, "required": ["id"]}
    _configure(served, {"queues": [{"pattern": "checked.*", "policy": {"validation": {"schema": schema}}}]})
    served.machine.run("systemctl", "restart", UNIT)
    try:
        served.postroom("anna", "publish", "--queue", "checked", "--json-body", "--message", '{"id": "a-1"}')
        with pytest.raises(MachineError, match="ERR_VALIDATION_FAILED"):
            served.postroom("anna", "publish", "--queue", "checked", "--json-body", "--message", '{"id": "?"}')
        served.postroom("anna", "publish", "--queue", "late", "--message", "x", "--delay", "500")
        assert served.postroom("bert", "consume", "--queue", "late", "--wait", "30000")["message"]
        cron = ["schedule", "set", "--name", "nightly", "--queue", "late", "--cron", "0 3 * * *", "--message", "x"]
        served.machine.run("postroom", *cron, "--ipc-root", IPC, user="tess")
        backup = ["runuser", "-u", "postroom", "--", "postroomd", "backup", "--root", ROOT, "--to", "/tmp/backup.tar"]
        assert "/tmp/backup.tar: " in served.machine.run(*backup)
        assert "not permitted" not in served.log()
    finally:
        served.machine.run("rm", "--force", "/tmp/backup.tar")
        _configure(served, {})
        served.machine.run("systemctl", "restart", UNIT)


def _migrate(served: RunningService, backend: str) -> None:
    served.stop()
    served.machine.run("postroomd", "migrate", "--to", backend, "--root", ROOT, user="postroom")
    assert json.loads(served.machine.run("cat", CONFIGURATION))["backend"] == backend
    served.machine.run("sh", "-c", f"rm --recursive {ROOT}/data/*.replaced-*")
    served.start()


def test_time_continues_exactly_after_a_restart_in_the_same_boot(served: RunningService) -> None:
    served.machine.run("systemctl", "restart", UNIT)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    marks = [event for event in served.events() if event["type"] == "clock_marked"]
    assert {mark["bootId"] for mark in marks} == {boot_id}


def test_systemd_shows_backlog_and_rates(served: RunningService) -> None:
    served.publish("anna", "shown")
    served.machine.run("systemctl", "restart", UNIT)
    served.machine.until(lambda: served.shows("StatusText").startswith("serving: "), "the status line is there")
    assert re.match(r"serving: \d+ ready.*; per second: [\d.]+ publish, ", served.shows("StatusText"))


def test_a_daemon_that_hangs_is_killed_by_the_watchdog_logs_where_and_is_restarted(served: RunningService) -> None:
    key, before = served.publish("anna", "hang"), served.pid
    served.machine.run("kill", "-STOP", str(before))
    served.until_ready_again(before)
    for said in (f"{UNIT}: Watchdog timeout", "Fatal Python error: Aborted"):
        served.machine.until(lambda said=said: said in served.log(), "it is logged")  # type: ignore[misc]
    assert served.postroom("bert", "consume", "--queue", "hang")["message"]["messageKey"] == key


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_a_killed_daemon_is_restarted(served: RunningService, signal: str) -> None:
    key, before = served.publish("anna", signal), served.pid
    served.machine.run("kill", f"-{signal}", str(before))
    served.until_ready_again(before)
    assert served.postroom("bert", "consume", "--queue", signal)["message"]["messageKey"] == key


def test_a_reload_puts_a_new_configuration_in_force_without_a_restart(served: RunningService) -> None:
    served.publish("anna", "reloaded")
    before = served.pid
    _configure(served, {"policyDefaults": {"retry": {"limit": 9}}})
    served.machine.run("systemctl", "reload", UNIT)
    served.machine.until(lambda: served.shows("StatusText") == "reloaded", "the configuration is in force")
    policy = served.postroom("bert", "policy", "get", "--queue", "reloaded")["policy"]
    assert policy["retry"]["limit"] == 9
    assert served.pid == before


def test_an_invalid_configuration_is_reported_to_the_reloading_user_and_the_log(served: RunningService) -> None:
    served.publish("anna", "kept")
    before = served.pid
    served.machine.write(CONFIGURATION, '{"backend": 7}')
    try:
        assert served.machine.ask("systemctl", "reload", UNIT).returncode
        served.machine.until(lambda: "backend: expected one of" in served.log(), "it is logged")
        served.machine.run("kill", "-HUP", str(before))
        served.machine.until(lambda: "reload refused" in served.log(), "the daemon has looked at it")
        served.publish("anna", "kept")
        assert served.pid == before
    finally:
        _configure(served, {})


def test_a_service_that_could_not_start_starts_by_itself_once_its_configuration_is_repaired(
    served: RunningService,
) -> None:
    served.machine.write(CONFIGURATION, "{")
    try:
        assert served.machine.ask("systemctl", "restart", UNIT).returncode
        served.machine.until(
            lambda: int(served.shows("NRestarts")) > 5, "it was tried more often than systemd would by itself"
        )
    finally:
        _configure(served, {})
    served.until_ready_again(0)
    served.publish("anna", "mended")


def test_a_stop_under_load_is_orderly_and_loses_nothing(served: RunningService) -> None:
    users = ("anna", "bert", "tess")
    command = ["/opt/python/bin/python3", "-I", "-c", PUBLISHER]
    environment = ["env", "LD_LIBRARY_PATH=/opt/python/lib"]
    publishers = [served.machine.spawn(*environment, *command, user=user) for user in users]
    keys: list[str] = []
    for publisher in publishers:
        assert publisher.stdout
        keys += [publisher.stdout.readline().strip() for _ in range(20)]
    served.stop()
    assert served.shows("Result") == "success"
    assert served.shows("ExecMainStatus") == "0"
    for publisher in publishers:
        with publisher:
            assert publisher.stdout and publisher.stderr
            keys += publisher.stdout.read().split()  # communicate would miss what readline has read ahead
            assert not publisher.stderr.read()
    served.start()
    published = {event.get("key") for event in served.events() if event["type"] == "published"}
    assert keys
    assert set(keys) <= published
    assert served.postroom("anna", "status", "--queue", "load")["metrics"]["ready"] >= len(keys)


def test_removed_directories_are_recreated_at_the_start(served: RunningService) -> None:
    served.stop()
    served.machine.run("rm", "--recursive", IPC, f"{ROOT}/traffic")
    served.start()
    served.publish("anna", "anew")
    assert served.permissions() == (0, [])


def test_a_daemon_says_at_its_start_what_is_wrong(served: RunningService) -> None:
    served.stop()
    served.machine.run("chmod", "0777", "/var/lib")
    served.start()
    served.machine.run("chmod", "0755", "/var/lib")
    served.machine.until(lambda: "/var/lib: has the mode 0777" in served.log(), "it is logged")


def test_a_client_without_a_response_directory_has_one_made(served: RunningService) -> None:
    def send(client: str, number: int) -> None:
        request: dict[str, object] = {"requestId": f"r{number}", "clientId": client, "command": "publish"}
        request |= {"timestampMs": 1, "deadlineMs": 0, "payload": {"queue": "cpp", "message": "x"}}
        words = ["sh", "-c", CPP_REQUEST, "sh", client, str(number)]
        served.machine.run(*words, user="bert", given=json.dumps(request))

    def is_answered(client: str, number: int) -> bool:
        answer = f"{IPC}/responses/{client}/r{number}.json"
        return served.machine.ask("cat", answer, user="bert").returncode == 0

    send("cpp-1", 1)
    served.machine.until(lambda: "requests of client 'cpp-1' are not executed" in served.log(), "it is not executed")
    box = f"{IPC}/responses/cpp-1"
    assert [one["path"] for one in served.permissions()[1]] == [box]
    add = ["postroomd", "add-client", "cpp-1", "--root", ROOT, "--user", "bert"]
    assert served.machine.run(*add) == f"exists already: {box}, for bert\n"
    served.machine.until(lambda: is_answered("cpp-1", 1), "it is answered once its directory can be written")
    send("cpp-1", 2)
    served.machine.until(lambda: is_answered("cpp-1", 2), "so is the next one, at once")
    served.machine.run("postroomd", "add-client", "cpp-2", "--root", ROOT, "--user", "bert")
    send("cpp-2", 1)
    served.machine.until(lambda: is_answered("cpp-2", 1), "it is answered at once")
    assert served.permissions() == (0, [])


@pytest.mark.parametrize("gone", ["requests", ""])
def test_a_mailbox_removed_under_a_daemon_is_recreated_if_permitted(served: RunningService, gone: str) -> None:
    before = served.pid
    served.machine.run("rm", "--recursive", f"{IPC}/{gone}")
    served.until_ready_again(before)
    served.publish("anna", "whole")
    assert served.permissions() == (0, [])
    assert f"{IPC}/{gone}".rstrip("/") + " was removed, and only root can make it" in served.log()


def test_existing_setup_stays_and_missing_parts_are_added(served: RunningService) -> None:
    reported = served.machine.run("postroomd", "init", "--system")
    assert f"{CONFIGURATION}: exists" in reported
    assert "/etc/systemd/system/postroomd.service: exists\n" in reported
    served.machine.run("rm", "/etc/tmpfiles.d/postroom.conf")
    assert "/etc/tmpfiles.d/postroom.conf: created" in served.machine.run("postroomd", "init", "--system")


def _configure(served: RunningService, tree: dict[str, object]) -> None:
    served.machine.write(CONFIGURATION, json.dumps(tree))
