"""Records of the log: as JSON, in systemd's journal, in files, and never more of a kind than is wanted."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from postroom_common.logs.handlers import JournaldHandler, StreamHandler, is_journal
from postroom_common.logs.outlets import WINDOW_S, Outlets
from postroom_common.logs.records import TEXT_LIMIT, JsonFormatter, about, json_line, text_of
from postroom_daemon.platform.logs import LogFiles
from tests.daemon.journald import journal, read_fields


def record(text: str = "the text", *args: Any, level: int = logging.ERROR, line: int = 7, **fields: Any) -> Any:
    made = logging.LogRecord("postroom_daemon.broker.broker", level, "/x/broker.py", line, text, args, None, "run")
    vars(made).update(about(**fields))
    return made


class Heard(logging.Handler):
    """An outlet that keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(text_of(record))


class SetClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# --- lines ------------------------------------------------------------------------------------------------------


def test_a_json_line_has_time_severity_text_and_subject():
    made = record("request %s failed", "r-1", client="press-7", uid=1001, queue="a\nb", trace_id="")
    made.created = 1_800_000_000.25
    assert json.loads(json_line(made)) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "error",
        "message": "request r-1 failed",
        "logger": "postroom_daemon.broker.broker",
        "source": "broker.py:7",
        "client": "press-7",
        "uid": 1001,
        "queue": "a\\nb",
    }


def test_a_json_line_is_one_line_of_utf_8_whatever_the_text_is():
    hostile = "a\n{}\x1b[2J\udc80\u2028ü" + "x" * 2 * TEXT_LIMIT
    line = json_line(record("%s", hostile, request=hostile))
    assert b"\n" not in line and len(line) < 3 * TEXT_LIMIT
    assert json.loads(line)["message"].startswith("a\\n{}\\x1b[2J\\udc80\\u2028ü")


def test_fields_cannot_replace_the_logs_own_fields():
    assert json.loads(json_line(record(level=logging.INFO, message="forged", time="never")))["message"] == "the text"


def test_a_traceback_is_a_field_of_its_own():
    made = record()
    try:
        raise ValueError("of this")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert json.loads(json_line(made))["traceback"].endswith("\nValueError: of this")


# --- systemd's journal ----------------------------------------------------------------------------------------


def test_the_journal_gets_a_record_with_its_fields(tmp_path):
    with journal(tmp_path / "socket") as reader:
        handler = JournaldHandler("postroomd", tmp_path / "socket")
        made = record("two\nlines", client="press-7", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
        try:
            raise ValueError("of this")
        except ValueError:
            made.exc_info = sys.exc_info()
        handler.handle(made)
        fields = read_fields(reader.recv(2**20))
        handler.close()
    lines = fields.pop("MESSAGE").splitlines()
    assert (lines[0], lines[-1]) == ("two\\nlines", "ValueError: of this")
    assert fields == {
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "postroomd",
        "CODE_FILE": "broker.py",
        "CODE_LINE": "7",
        "CODE_FUNC": "run",
        "POSTROOM_LOGGER": "postroom_daemon.broker.broker",
        "POSTROOM_CLIENT": "press-7",
        "POSTROOM_TRACE_ID": "4bf92f3577b34da6a3ce929d0e0e4736",
    }


def test_the_largest_record_fits_into_a_datagram(tmp_path):
    with journal(tmp_path / "socket") as reader:
        handler = JournaldHandler("postroomd", tmp_path / "socket")
        long: dict[str, Any] = dict.fromkeys(("request", "client", "queue"), "ü" * 10**6)
        handler.handle(record("%s", "\x1b" * 10**6, **long))
        assert len(reader.recv(2**20)) > TEXT_LIMIT
        handler.close()
    assert handler.lost == 0


def test_a_journal_that_does_not_read_costs_records_and_one_wait(tmp_path):
    with journal(tmp_path / "socket") as reader:
        handler = JournaldHandler("postroomd", tmp_path / "socket")
        sent = 0
        while not handler.lost:
            handler.handle(record())
            sent += 1
        for _ in range(3):
            handler.handle(record())
        assert handler.lost == 4
        for _ in range(sent - 1):
            reader.recv(2**20)
        handler.handle(record("heard again"))
        assert read_fields(reader.recv(2**20))["MESSAGE"] == "heard again"
        handler.close()


def test_without_the_journals_socket_records_go_to_standard_error_with_their_severity(tmp_path, capsys):
    handler = JournaldHandler("postroomd", tmp_path / "socket")
    handler.handle(record("a\nb"))
    handler.close()
    assert (capsys.readouterr().err, handler.lost) == ("<3>a\\nb\n", 0)


def test_a_stream_belongs_to_the_journal_only_if_its_inode_matches(tmp_path):
    with (tmp_path / "a").open("w") as meant, (tmp_path / "b").open("w") as other:
        found = os.fstat(meant.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(meant, environ)
        assert not is_journal(other, environ)
        assert not is_journal(meant, {})


# --- how many ---------------------------------------------------------------------------------------------------


def test_records_of_a_kind_are_limited_and_the_last_one_counts_the_omitted():
    heard, clock = Heard(), SetClock()
    outlets = Outlets([heard], 2, clock)
    for number in range(7):
        outlets.handle(record("no. %d", number))
    outlets.handle(record("of another kind", line=8))
    assert heard.texts == ["no. 0", "no. 1", "of another kind"]
    clock.now += WINDOW_S - 1
    outlets.tick()
    assert len(heard.texts) == 3
    clock.now += 1
    outlets.tick()
    outlets.tick()
    assert heard.texts[3:] == ["no. 6 (and 4 more like it in the last minute)"]
    outlets.handle(record("afterwards"))
    assert heard.texts[4:] == ["afterwards"]
    assert (outlets.records, outlets.suppressed) == ({"error": 9}, 5)


def test_omitted_records_are_counted_before_the_next_of_their_kind_and_at_the_end():
    heard, clock = Heard(), SetClock()
    outlets = Outlets([heard], 1, clock)
    for text in ("a", "b"):
        outlets.handle(record(text))
    clock.now += WINDOW_S
    for text in ("c", "d", "e"):
        outlets.handle(record(text))
    assert heard.texts == ["a", "b", "c"]
    outlets.close()
    assert heard.texts == ["a", "b", "c", "e (and 1 more like it in the last minute)"]


def test_a_postponed_record_describes_the_time_when_it_was_made():
    heard, clock, reported = Heard(), SetClock(), ["then"]
    outlets = Outlets([heard], 1, clock)
    for _ in range(2):
        outlets.handle(record("%s", reported))
    reported[0] = "now"
    outlets.close()
    assert heard.texts == ["['then']", "['then']"]


@pytest.mark.parametrize(("per_minute", "level"), [(0, logging.ERROR), (1, logging.CRITICAL)])
def test_without_a_limit_no_record_is_omitted_and_critical_ones_never_are(per_minute, level):
    heard = Heard()
    outlets = Outlets([heard], per_minute, SetClock())
    for _ in range(50):
        outlets.handle(record(level=level))
    assert (len(heard.texts), outlets.suppressed) == (50, 0)


# --- files ------------------------------------------------------------------------------------------------------


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_files_of_the_log_are_bounded_in_size_and_number_and_read_by_the_group(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "of-others.jsonl").touch()
    files = LogFiles(tmp_path / "logs", file_bytes=500, keep_files=3)
    for number in range(40):
        files.handle(record("no. %d", number))
    files.close()
    own = [f"postroomd-{number:020d}.jsonl" for number in (8, 9, 10)]
    assert names(tmp_path / "logs") == ["of-others.jsonl", *own]
    lines = [line for name in own for line in (tmp_path / "logs" / name).read_text().splitlines()]
    assert json.loads(lines[-1])["message"] == "no. 39"
    assert all((tmp_path / "logs" / name).stat().st_mode & 0o777 == 0o640 for name in own)


def test_a_daemon_that_starts_often_continues_its_last_file(tmp_path):
    for number in range(3):
        files = LogFiles(tmp_path, file_bytes=10**6, keep_files=2)
        files.handle(record("run %d", number))
        files.close()
    (name,) = names(tmp_path)
    assert [json.loads(line)["message"] for line in (tmp_path / name).read_text().splitlines()] == [
        "run 0",
        "run 1",
        "run 2",
    ]


def test_a_removed_directory_is_made_again_and_gets_the_next_records(tmp_path):
    files = LogFiles(tmp_path / "logs", file_bytes=10**6, keep_files=2)
    files.handle(record("before"))
    shutil.rmtree(tmp_path / "logs")
    files.handle(record("after"))
    files.close()
    (name,) = names(tmp_path / "logs")
    assert json.loads((tmp_path / "logs" / name).read_text())["message"] == "after"


def test_a_line_torn_by_a_power_cut_spoils_no_other(tmp_path):
    torn = tmp_path / f"postroomd-{1:020d}.jsonl"
    torn.write_text('{"time": "20')
    files = LogFiles(tmp_path, file_bytes=10**6, keep_files=2)
    files.handle(record())
    files.close()
    assert torn.read_text() == '{"time": "20'
    assert json.loads((tmp_path / f"postroomd-{2:020d}.jsonl").read_text())["message"] == "the text"


def test_an_unwritable_directory_loses_records_and_counts_them(tmp_path):
    (tmp_path / "logs").touch()
    files = LogFiles(tmp_path / "logs", file_bytes=10**6, keep_files=2)
    files.handle(record())
    files.handle(record())
    files.close()
    assert files.lost == 2


def test_a_standard_error_that_nobody_reads_stops_nothing_and_continues_with_complete_lines(monkeypatch):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with os.fdopen(writing, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        handler = StreamHandler()
        handler.setFormatter(JsonFormatter())
        for _ in range(100):
            handler.emit(record("x" * 5000))
        assert handler.lost == 100
        begun = os.read(reading, 2**16)
        handler.emit(record("it is read again"))
        lines = (begun + os.read(reading, 2**16)).splitlines()
        assert len(lines) == 2, "one was begun"
        assert json.loads(lines[1])["message"] == "it is read again"
        os.close(reading)
        handler.emit(record("it is gone"))
        assert handler.lost == 101


def test_no_file_of_the_daemon_gets_the_number_of_a_standard_stream_that_is_closed(tmp_path):
    script = """
import os, sys
from postroom_common.logs.handlers import fill_standard_streams
fill_standard_streams()
print("heard by nobody", file=sys.stderr)
with open(sys.argv[1], "w") as file:
    file.write(f"{file.fileno() > 2} {[os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)]}")
"""
    reported = tmp_path / "told"
    subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", script, reported], check=True)
    assert reported.read_text() == "True ['/dev/null', '/dev/null', '/dev/null']"
