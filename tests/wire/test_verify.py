"""``postroomd verify`` beside a daemon that works, and ``repair`` after it was killed."""

from __future__ import annotations

import json
from threading import Semaphore, Thread
from typing import Any

import pytest

from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon

LOOKS = 3
#: Of each thread of the load, for each look.
ROUNDS = 40


def postroomd(daemon: Daemon, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a command on the daemon's root, and what it printed."""
    done = daemon.tool(words[0], "--json", *words[1:])
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr.decode()}


def load(daemon: Daemon, rounds: Semaphore, number: int) -> None:
    """Publish, consume, and settle in all ways, for each round that is given, to the end of all."""
    for count in range(1, 1 + LOOKS * ROUNDS):
        rounds.acquire()
        queue = f"load-{(number + count) % 3}"
        daemon.publish(queue, f"{number}-{count}", delayMs=20 * (count % 2))
        delivery = daemon.ask("consume_next", queue=queue, visibilityTimeoutSec=0.2 if count % 7 == 0 else 30)
        if delivery["message"] and count % 7:
            command = ("ack", "nack", "release", "ack")[count % 4]
            extra = {"requeue": bool(count % 3), "reason": "told"} if command == "nack" else {}
            daemon.settle(command, delivery, **extra)


@pytest.mark.slow
@on_every_store
def test_a_daemon_under_load_is_intact_at_every_check(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    daemon.ask("set_policy", queue="load-0", policy={"retry": {"initialDelaySec": 1}})
    given = [Semaphore(0) for _ in range(3)]
    workers = [Thread(target=load, args=(daemon, rounds, number)) for number, rounds in enumerate(given)]
    for worker in workers:
        worker.start()
    seen = []
    try:
        for _ in range(LOOKS):  # so much load for each: it would grow with the time of a look, which grows with it
            for rounds in given:
                rounds.release(ROUNDS)
            seen.append(postroomd(daemon, "verify"))
    finally:
        for rounds, worker in zip(given, workers, strict=True):
            rounds.release(LOOKS * ROUNDS)
            worker.join()
    assert [code for code, _ in seen] == [0] * LOOKS, [report.get("error", report) for code, report in seen if code]
    assert all(report["running"] for _, report in seen)
    assert not [report["findings"] for _, report in seen if report["findings"]]
    events = [report["asOfEvent"] for _, report in seen]
    assert events == sorted(set(events)) and seen[-1][1]["messages"] > 0
    code, refused = postroomd(daemon, "repair", "--apply")
    assert code == 1 and "stop it first" in refused["error"]
    daemon.kill()
    code, report = postroomd(daemon, "verify", "--deep")
    assert (code, report["running"]) == (0, False) and {"store-behind"} >= report["counts"].keys(), report
