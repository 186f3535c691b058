"""Recordings: everything recorded is replayed, from any moment, and damage is reported."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom_common.events import encode_line
from postroom_console.data.model import TREND_POINTS, Model
from postroom_console.data.recording import Recorder, RecordingError, encode_header, encode_update
from postroom_console.data.replay import Replay
from postroom_console.data.updates import Answer, Failure, Lines, Outcome, Restart, Result, Step, Steps, Update
from tests.console.lines import event, request

Timed = list[tuple[int, Update]]


class Script:
    """A source that has these updates, and remembers what is wanted of it."""

    is_live = True

    def __init__(self, updates: Timed) -> None:
        self.updates = updates
        self.wanted: dict[str, str] = {}

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def drain(self) -> Timed:
        taken, self.updates = self.updates, []
        return taken

    def subscribe(self, name: str, command: str, payload: Mapping[str, Any], every_ms: int) -> None:
        self.wanted[name] = command

    def unsubscribe(self, name: str) -> None:
        self.wanted.pop(name, None)

    def refresh(self) -> None: ...

    def execute(self, steps: Steps, rate: float | None = None) -> int:
        return 7

    def cancel(self, ticket: int) -> None: ...

    def status_text(self) -> str:
        return ""


class Clock:
    """A clock in seconds that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def queues(ready: int) -> Answer:
    one = {"queue": "alarms", "ready": ready, "inflight": 0, "delayed": 0, "dlq": 0}
    return Answer("queues", {"queues": [one], "asOfEvent": ready, "engineNowMs": ready * 1000})


#: A minute and a half of a device, an answer and a line each second.
INCIDENT: Timed = [
    (second * 1000 + offset, update)
    for second in range(91)
    for offset, update in ((0, queues(second)), (10, Lines((event(second + 1),))))
]


def write(path: Path, updates: Timed, **options: Any) -> Path:
    recorder = Recorder(Script(updates), path, "site-a", **options)
    recorder.start()
    recorder.drain()
    recorder.stop()
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replay(tmp_path: Path, clock: Clock) -> Iterator[Replay]:
    """The incident, paused at its beginning."""
    made = Replay(write(tmp_path / "incident", INCIDENT), clock)
    made.start()
    made.pause()
    yield made
    made.stop()


def output(replay: Replay) -> list[Update]:
    return [update for _, update in replay.drain()]


# --- writing ------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
updates = st.one_of(
    st.builds(Answer, st.text(max_size=6), st.dictionaries(st.text(max_size=4), json_values, max_size=3)),
    st.builds(Failure, st.text(max_size=6), st.text(max_size=6), st.text(max_size=6)),
    st.builds(
        Lines,
        st.sampled_from([(), (event(1),), (event(2, "died", queue="수집"), request("ack", engineMs=20))]),
        st.integers(0, 9),
        st.integers(0, 9),
        st.text(max_size=6),
        st.integers(0, 9),
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 10**6), updates), max_size=8))
def test_a_recording_is_played_back_at_its_own_times(tmp_path: Path, found: Timed) -> None:
    path = tmp_path / "recording"
    path.unlink(missing_ok=True)
    found.sort(key=lambda pair: pair[0])
    clock = Clock()
    replay = Replay(write(path, list(found)), clock)
    replay.start()
    clock.now += 1000
    assert replay.damaged == 0
    assert replay.drain() == [(at - found[0][0], update) for at, update in found]
    replay.stop()


def test_a_recording_is_for_its_owner_only_and_says_what_is_in_it(tmp_path: Path) -> None:
    path = write(tmp_path / "r", [(5, queues(1)), (9, Lines((event(1),)))], wall_ms=lambda: 1_795_857_482_000)
    assert path.stat().st_mode & 0o777 == 0o600
    header, answer, lines = map(json.loads, path.read_text().splitlines())
    assert header["format"] == "postroom-console-recording"
    assert (header["version"], header["device"], header["wallMs"]) == (1, "site-a", 1_795_857_482_000)
    assert "Bodies of messages" in header["note"]
    assert (answer["ms"], answer["kind"], answer["name"]) == (0, "answer", "queues")
    assert (lines["ms"], json.loads(lines["events"][0])["id"]) == (4, 1)


def test_an_earlier_recording_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "r", INCIDENT[:1])
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for there in (path, tmp_path / "link"):
        with pytest.raises(FileExistsError):
            Recorder(Script([]), there, "site-a")
    assert path.read_bytes() == before
    assert not (tmp_path / "target").exists()


def test_the_outcomes_of_actions_are_shown_and_not_recorded(tmp_path: Path) -> None:
    outcome = Outcome(1, Result.OK)
    recorder = Recorder(Script([(0, outcome)]), tmp_path / "r", "site-a")
    assert recorder.drain() == [(0, outcome)]
    recorder.stop()
    assert len((tmp_path / "r").read_text().splitlines()) == 1


def test_a_recording_ends_at_its_limit_and_what_it_has_can_be_shown(tmp_path: Path) -> None:
    recorder = Recorder(Script(INCIDENT[:4]), tmp_path / "r", "site-a", limit_bytes=2000)
    recorder.drain()
    assert recorder.status_text().startswith("REC ")
    recorder._source.updates = INCIDENT[4:]  # type: ignore[attr-defined]
    assert len(recorder.drain()) == len(INCIDENT) - 4
    assert recorder.status_text() == "RECORDING ENDED: it has reached 2.0kB"
    recorder.stop()
    assert (tmp_path / "r").stat().st_size < 2000
    replay = Replay(tmp_path / "r")
    assert replay.damaged == 0
    replay.stop()


def test_a_full_disk_ends_the_recording_and_leaves_no_half_line(tmp_path: Path) -> None:
    recorder = Recorder(Script(INCIDENT[:2]), tmp_path / "r", "site-a")
    recorder.drain()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        recorder._source.updates = INCIDENT[2:]  # type: ignore[attr-defined]
        assert len(recorder.drain()) == len(INCIDENT) - 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert recorder.problem == "File too large"
    recorder.stop()
    replay = Replay(tmp_path / "r")
    assert (replay.damaged, replay.length_ms) == (0, 10)
    replay.stop()


def test_leases_are_recorded_whatever_screen_is_open(tmp_path: Path) -> None:
    script = Script([])
    recorder = Recorder(script, tmp_path / "r", "site-a")
    recorder.start()
    assert script.wanted == {"leases": "list_inflight"}
    recorder.subscribe("dead", "list_dlq", {}, 1)
    recorder.unsubscribe("dead")
    recorder.unsubscribe("leases")
    assert script.wanted == {"leases": "list_inflight"}
    assert recorder.is_live and recorder.execute(()) == 7
    recorder.stop()


# --- playing ------------------------------------------------------------------------------------------------------


def test_a_recording_plays_at_the_speed_of_its_time(replay: Replay, clock: Clock) -> None:
    replay.pause()
    assert output(replay) == [queues(0)]
    clock.now += 1.005
    assert output(replay) == [INCIDENT[1][1], queues(1)]
    assert replay.now_ms() == 1005
    assert output(replay) == []


def test_it_pauses_and_continues_where_it_was(replay: Replay, clock: Clock) -> None:
    replay.pause()
    clock.now += 2
    replay.pause()
    clock.now += 60
    assert output(replay)[-1] == queues(2)
    assert replay.now_ms() == 2000
    assert "PAUSED" in replay.status_text()
    replay.pause()
    clock.now += 0.5
    assert output(replay) == [INCIDENT[5][1]]
    assert "PAUSED" not in replay.status_text()


def test_a_step_goes_to_the_next_change_and_pauses_there(replay: Replay, clock: Clock) -> None:
    assert output(replay) == [queues(0)]
    steps = []
    for _ in range(4):
        clock.now += 5
        replay.step()
        steps.append((replay.now_ms(), output(replay)))
    assert steps == [(at, [update]) for at, update in INCIDENT[1:5]]


@pytest.mark.parametrize(
    ("changes", "speed", "shown"), [(1, 2.0, "x2"), (-1, 0.5, "x0.5"), (9, 64.0, "x64"), (-9, 0.25, "x0.25")]
)
def test_it_plays_faster_and_slower_within_bounds(
    replay: Replay, clock: Clock, changes: int, speed: float, shown: str
) -> None:
    replay.pause()
    for _ in range(abs(changes)):
        replay.change_speed(changes // abs(changes))
    clock.now += 1
    output(replay)
    assert replay.now_ms() == speed * 1000
    assert shown in replay.status_text()


def test_seeking_starts_over_with_the_state_of_that_moment(replay: Replay) -> None:
    replay.seek(70_500)
    updates = replay.drain()
    assert updates[0] == (70_500, Restart())
    model = Model()
    for at_ms, update in updates:
        if isinstance(update, Answer):
            model.take(update.name, update.data, at_ms)
    assert model.queues["alarms"].ready == 70
    assert model.age_ms(replay.now_ms()) == 500
    assert list(model.queues["alarms"].trend) == list(range(11, 71))
    assert len(model.queues["alarms"].trend) == TREND_POINTS
    seen = [record.number for _, update in updates if isinstance(update, Lines) for record in update.records]
    assert seen == list(range(1, 72))


@pytest.mark.parametrize("by_ms", [-10_000, 10_000])
def test_playback_continues_from_there_without_a_gap_or_a_repeat(replay: Replay, clock: Clock, by_ms: int) -> None:
    replay.seek(40_500)
    output(replay)
    replay.seek(by_ms)
    ready = (40_500 + by_ms) // 1000
    assert [update for update in output(replay) if isinstance(update, Answer)][-1] == queues(ready)
    replay.pause()
    clock.now += 1
    assert output(replay) == [queues(ready + 1), Lines((event(ready + 2),))]


def test_seeking_never_leaves_the_recording(replay: Replay) -> None:
    replay.seek(-5000)
    assert (replay.now_ms(), output(replay)) == (0, [Restart(), queues(0)])
    replay.seek(10**9)
    assert replay.now_ms() == replay.length_ms == 90_010
    output(replay)
    assert "END" in replay.status_text()
    replay.step()
    assert (replay.now_ms(), output(replay)) == (90_010, [])


def test_a_daemon_that_was_lost_at_that_moment_is_lost_after_seeking(tmp_path: Path) -> None:
    lost, back = Failure("queues", "", "gone"), Failure("queues", "", "gone for a moment")
    found: Timed = [(0, queues(1)), (10, back), (20, queues(2)), (30, lost), (40, Lines(()))]
    replay = Replay(write(tmp_path / "r", found), Clock())
    replay.seek(100)
    assert output(replay) == [Restart(), queues(1), queues(2), lost, Lines(())]
    replay.seek(-20)
    assert output(replay) == [Restart(), queues(1), queues(2)]
    replay.stop()


def test_the_line_at_the_top_says_that_it_is_a_recording_and_of_when(replay: Replay) -> None:
    replay.seek(65_000)
    note = replay.status_text()
    assert note.startswith("REPLAY 2")
    assert "1m05/1m30" in note


def test_nothing_is_asked_or_done_in_a_recording(replay: Replay) -> None:
    assert not replay.is_live
    replay.subscribe("x", "health", {}, 1)
    replay.unsubscribe("x")
    replay.refresh()
    replay.cancel(replay.execute((Step("pause", {}),)))
    assert output(replay) == [queues(0)]


# --- files that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a recording of a console"),
        (b"root:x:0:0:root:/root:/bin/bash\n", "not a recording of a console"),
        (b"\x00" * 4096, "not a recording of a console"),
        (b"{}\n", "not a recording of a console"),
        (encode_line({"format": "another", "version": 1}), "not a recording of a console"),
        (encode_line({"format": "postroom-console-recording", "version": "1"}), "not a recording of a console"),
        (encode_line({"format": "postroom-console-recording", "version": 1}), "not a recording of a console"),
        (encode_line({"format": "postroom-console-recording", "version": 2}), "a newer console"),
        (encode_header("site-a", 1)[:-20] + b"\n", "its beginning is damaged"),
    ],
)
def test_a_file_that_is_not_a_recording_is_reported(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=reason) as error:
        Replay(path)
    assert str(error.value).startswith(str(path))


def test_something_that_is_not_a_file_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(RecordingError, match="not a regular file"):
            Replay(path)


def test_the_rest_of_a_damaged_recording_is_shown_and_the_damage_is_reported(tmp_path: Path) -> None:
    lines = [encode_update(at, update) for at, update in INCIDENT[:6]]
    flipped = lines[2].replace(b'"ready":1', b'"ready":7')
    foreign = b"not a line of it\n"
    path = tmp_path / "r"
    path.write_bytes(encode_header("site-a", 1) + b"".join([*lines[:2], flipped, foreign, *lines[3:5], lines[5][:30]]))
    clock = Clock()
    replay = Replay(path, clock)
    assert replay.damaged == 2
    assert "2 damaged lines" in replay.status_text()
    clock.now += 60
    assert output(replay) == [
        queues(0),
        INCIDENT[1][1],
        Lines((), bad_lines=1),
        *(update for _, update in INCIDENT[3:5]),
    ]
    replay.stop()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.data())
def test_no_damage_makes_a_replay_fail(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "r"
    path.unlink(missing_ok=True)
    whole = write(path, INCIDENT[:8]).read_bytes()
    header = whole.index(b"\n") + 1
    at = data.draw(st.integers(header, len(whole) - 1))
    path.write_bytes(whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + data.draw(st.integers(0, 300)) :])
    clock = Clock()
    replay = Replay(path, clock)
    clock.now += 3600
    updates = output(replay)
    replay.seek(-(10**9))
    replay.seek(10**9)
    updates += output(replay)
    replay.stop()
    assert all(isinstance(update, Answer | Lines | Restart) for update in updates)
