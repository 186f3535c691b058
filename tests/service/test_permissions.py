"""Users and modes: what `check-permissions` finds, its advice, and response directories made by `add-client`."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.service.machine import Machine
from tests.service.running_service import CONFIGURATION, IPC, ROOT, RunningService

#: Owner, group and mode of each directory, by design.
DESIGN: Final = {
    ROOT: "postroom postroom 711",
    f"{ROOT}/data": "postroom postroom 700",
    f"{ROOT}/journal": "postroom postroom-ops 2750",
    f"{ROOT}/traffic": "postroom postroom-ops 2750",
    IPC: "postroom postroom-clients 710",
    f"{IPC}/requests": "postroom postroom 3733",
    f"{IPC}/responses": "postroom postroom 3733",
    f"{IPC}/dead": "postroom postroom 700",
    f"{IPC}/held": "postroom postroom 700",
}
#: What ``init --system`` has made, where a package has its own.
OURS: Final = {
    "/etc/systemd/system/postroomd.service": "/usr/lib/systemd/system/postroomd.service",
    "/etc/tmpfiles.d/postroom.conf": "/usr/lib/tmpfiles.d/postroom.conf",
}
_BOX: Final = f"{IPC}/responses/box"
_TOO_LONG: Final = _BOX + 128 * "4"
#: What somebody may have done to a root, and what is said of it; in turns, for some hide others.
DAMAGE: Final = (
    {
        f"chmod 00755 {ROOT}": f"{ROOT}: has the mode 0755, not 0711",
        f"chgrp root {IPC}": f"{IPC}: has the group root, not postroom-clients",
        f"chmod 00777 {IPC}/requests": f"{IPC}/requests: has the mode 0777, not 3733",
        f"chown root {IPC}/dead": f"{IPC}/dead: belongs to root, not to postroom",
        f"install -m 0600 /dev/null {ROOT}/postroomd.lock": f"{ROOT}/postroomd.lock: belongs to root: the",
        f"touch {ROOT}/data/x": f"{ROOT}/data: 1 files in it belong to other users",
        f"chmod 00700 {ROOT}/journal": f"{ROOT}/journal: has the mode 0700, not 2750",
        f"chmod 0600 {ROOT}/journal/*.jsonl": f"{ROOT}/journal: 1 files in it cannot be read by postroom-ops",
        "chmod 0777 /var/lib": "/var/lib: has the mode 0777: others can replace the root",
        f"chmod 0666 {CONFIGURATION}": f"{CONFIGURATION}: has the mode 0666: others can change what the daemon does",
        "gpasswd --add anna postroom": "postroom: anna is a member, and so can read the requests and answers",
        f"install -d -o anna -g anna -m 0755 {_BOX}-1": f"{_BOX}-1: belongs to anna:anna with the mode 2755: the",
        f"install -d -o anna -g postroom -m 0777 {_BOX}-2": f"{_BOX}-2: belongs to anna:postroom with the mode 2777: ",
        f"touch {_BOX}-3": f"{_BOX}-3: is not a directory",
        f"install -d -o anna {_TOO_LONG}": f"{_TOO_LONG}: is not a possible client id; anna created it",
    },
    {
        f"rmdir {IPC}/dead": f"{IPC}/dead: is missing",
        "chmod 0700 /var/lib": "/var/lib: has the mode 0700: neither the daemon nor its clients can enter it",
        f"chmod 0600 {CONFIGURATION}": f"{CONFIGURATION}: cannot be read by the daemon",
        "groupdel postroom-ops": "postroom-ops: there is no group postroom-ops",
    },
    {
        f"rmdir {IPC}/dead; touch {IPC}/dead": f"{IPC}/dead: is not a directory",
        **{f"install -D {own} {other}": f"{own}: hides {other}, which a package" for own, other in OURS.items()},
        f"chmod 0666 {ROOT}/journal/*.jsonl": f"{ROOT}/journal: 1 files in it can be changed by postroom-ops",
        "chown otto /var/lib": "/var/lib: belongs to otto, who can replace the root",
        f"chown otto {CONFIGURATION}": f"{CONFIGURATION}: belongs to otto, who can change what the daemon does",
    },
)


@pytest.fixture(scope="module")
def still(machine: Machine) -> RunningService:
    """A service that is set up and does not run."""
    made = RunningService(machine)
    made.set_up()
    machine.run("sh", "-c", f"umask 027; touch {ROOT}/journal/{1:020d}.jsonl", user="postroom")
    return made


def test_owners_groups_and_modes_are_as_designed(still: RunningService) -> None:
    reported = still.machine.run("stat", "--format", "%n %U %G %a", *DESIGN)
    assert dict(line.split(" ", 1) for line in reported.splitlines()) == DESIGN


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_faults_are_reported_with_the_remedy(still: RunningService, damage: dict[str, str]) -> None:
    for command in damage:
        still.machine.run("sh", "-c", command)
    code, findings = still.permissions()
    assert code == 3
    reported = "\n".join(f"{one['path']}: {one['problem']}" for one in findings)
    assert [words for words in damage.values() if words not in reported] == []
    for _ in range(4):  # mending one thing may show another
        for finding in findings:
            still.machine.run("sh", "-c", finding["mend"])
        code, findings = still.permissions()
        if not code:
            break
    assert (code, findings) == (0, [])


def test_the_text_says_what_to_do_and_how_many_there_are(still: RunningService) -> None:
    still.machine.run("chmod", "0755", f"{IPC}/requests")
    reported = still.machine.ask("postroomd", "check-permissions", "--root", ROOT).stdout
    assert f"    chmod 03733 {IPC}/requests\n1 problem found with this root for several users\n" in reported
    still.machine.run("chmod", "3733", f"{IPC}/requests")


def test_a_clients_name_can_neither_forge_advice_nor_reach_files_of_root(still: RunningService) -> None:
    still.machine.run("mkdir", f"{IPC}/responses/x\n    rm -rf ~\x1b[2J", user="anna")
    reported = still.machine.ask("postroomd", "check-permissions", "--root", ROOT).stdout
    assert "\n    rm -rf ~" not in reported
    assert "\x1b" not in reported
    still.machine.run("install", "-d", "-o", "anna", "-m", "0700", _BOX)
    findings = still.permissions()[1]
    still.machine.run("rm", "-r", _BOX)
    still.machine.run("ln", "-s", "/etc/shadow", _BOX, user="anna")
    before = still.machine.run("stat", "--format", "%U %G %a", "/etc/shadow")
    for finding in findings:
        still.machine.ask("sh", "-c", finding["mend"])
    assert still.machine.run("stat", "--format", "%U %G %a", "/etc/shadow") == before
    still.machine.run("rm", _BOX)
    assert still.permissions() == (0, [])


def test_a_root_of_one_user_is_closed_to_others(machine: Machine) -> None:
    machine.run("postroomd", "init", "--root", "/srv/own")
    check = ["postroomd", "check-permissions", "--json", "--root", "/srv/own"]
    assert json.loads(machine.run(*check)) == {"ok": True, "setUp": "one-user", "findings": []}
    machine.run("chmod", "0755", "/srv/own")
    reported = machine.ask(*check)
    assert reported.returncode == 3
    assert json.loads(reported.stdout)["findings"][0]["mend"] == "chmod 00700 /srv/own"
    machine.run("chmod", "0700", "/srv/own")
    assert machine.ask(*check, "--several-users").returncode == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("..", "--user", "anna"), "cannot be a client id"),
        (("theirs", "--user", "anna"), "belongs to bert"),
        (("linked", "--user", "anna"), "is not a directory"),
        (("new", "--user", "nobody-of-that-name"), "there is no user nobody-of-that-name"),
    ],
)
def test_a_response_directory_that_cannot_be_given_is_refused(
    still: RunningService, words: tuple[str, ...], why: str
) -> None:
    still.machine.run("install", "-d", "-o", "bert", "-g", "postroom", "-m", "0770", f"{IPC}/responses/theirs")
    still.machine.run("ln", "-sfn", "/etc", f"{IPC}/responses/linked", user="bert")
    refused = still.machine.ask("postroomd", "add-client", *words, "--root", ROOT)
    still.machine.run("rm", f"{IPC}/responses/linked")
    assert refused.returncode == 1
    assert why in refused.stderr


def test_a_check_by_root_leaves_no_file_that_the_daemon_cannot_use(still: RunningService) -> None:
    still.machine.ask("postroomd", "verify", "--root", ROOT)
    touched = [f"{ROOT}/postroomd.lock", f"{ROOT}/journal", f"{ROOT}/data"]
    assert not still.machine.run("find", *touched, "!", "-user", "postroom")


def test_only_root_sets_a_system_up_and_gives_response_directories_away(still: RunningService) -> None:
    for words in (("init", "--system"), ("add-client", "given", "--root", ROOT, "--user", "anna")):
        refused = still.machine.ask("postroomd", *words, user="postroom")
        assert refused.returncode == 1, refused
        assert "only root can" in refused.stderr
