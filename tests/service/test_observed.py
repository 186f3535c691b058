"""What can be observed of the service on a machine: systemd's journal, its log files, its metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.service.running_service import CONFIGURATION, UNIT, RunningService

FIGURES: Final = "/run/postroom/postroom.prom"
#: As docs/observability.md has it.
DROP_IN: Final = """\
[Service]
RuntimeDirectory=postroom
RuntimeDirectoryPreserve=yes
"""


@pytest.fixture(scope="module", autouse=True)
def reported(served: RunningService) -> Iterator[None]:
    """The service writes all that it can."""
    served.machine.write(f"/etc/systemd/system/{UNIT}.d/figures.conf", DROP_IN)
    tree = {"paths": {"logRoot": "/var/log/postroom"}, "metrics": {"file": FIGURES, "intervalSec": 1}}
    served.machine.write(CONFIGURATION, json.dumps(tree))
    served.machine.run("systemctl", "daemon-reload")
    served.machine.run("systemctl", "restart", UNIT)
    yield


def journal(served: RunningService, *matches: str) -> list[dict[str, Any]]:
    """Records of systemd's journal with their fields."""
    lines = served.machine.run("journalctl", "--no-pager", "--output", "json", "--identifier", "postroomd", *matches)
    return [json.loads(line) for line in lines.splitlines()]


def test_the_journal_has_the_log_with_fields_of_its_own(served: RunningService) -> None:
    (record, *_) = journal(served, "POSTROOM_LOGGER=postroom_daemon.service.loop", "CODE_FILE=loop.py")
    assert record["MESSAGE"].startswith("serving /var/lib/postroom/ipc")
    assert (record["PRIORITY"], record["_SYSTEMD_UNIT"], record["_TRANSPORT"]) == ("6", UNIT, "journal")
    assert record["CODE_LINE"].isdigit() and record["CODE_FUNC"] == "run"


def test_the_log_files_are_for_their_group(served: RunningService) -> None:
    (line,) = served.machine.run("sh", "-c", "stat -c '%U %a %n' /var/log/postroom/*").splitlines()
    assert line.split()[:2] == ["postroom", "640"]
    records = [json.loads(one) for one in served.machine.run("cat", line.split()[2]).splitlines()]
    assert any(one["message"].startswith("serving ") for one in records)


def test_a_collector_of_another_user_can_read_the_metrics(served: RunningService) -> None:
    served.publish("anna", "figures")
    wanted = 'postroom_queue_messages{queue="figures",state="ready"} 1\n'
    served.machine.until(lambda: wanted in served.machine.ask("cat", FIGURES, user="otto").stdout, "it is told")
    served.stop()
    assert served.machine.run("cat", FIGURES, user="otto").splitlines()[-1] == "postroom_up 0"
    served.start()
