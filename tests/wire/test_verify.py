"""``postroomd verify`` beside a daemon that works, and ``repair`` after it was killed."""

from __future__ import annotations

import json
import subprocess
import sys
from threading import Event, Thread
from typing import Any

from tests.wire.conftest import MakeDaemon, on_every_store
from tests.wire.daemon import Daemon


def postroomd(daemon: Daemon, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a command on the daemon's root, and what it printed."""
    command = [sys.executable, "-m", "postroom_daemon", words[0], "--root", str(daemon.root), "--json", *words[1:]]
    done = subprocess.run(command, env=daemon.environment, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def load(daemon: Daemon, over: Event, number: int) -> None:
    """Publish, consume, and settle in all ways, until told to stop."""
    count = 0
    while not over.is_set():
        count += 1
        queue = f"load-{(number + count) % 3}"
        daemon.publish(queue, f"{number}-{count}", delayMs=20 * (count % 2))
        delivery = daemon.ask("consume_next", queue=queue, visibilityTimeoutSec=0.2 if count % 7 == 0 else 30)
        if delivery["message"] and count % 7:
            command = ("ack", "nack", "release", "ack")[count % 4]
            extra = {"requeue": bool(count % 3), "reason": "told"} if command == "nack" else {}
            daemon.settle(command, delivery, **extra)


@on_every_store
def test_a_daemon_under_load_is_sound_ten_times(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    daemon.ask("set_policy", queue="load-0", policy={"retry": {"initialDelaySec": 1}})
    over = Event()
    workers = [Thread(target=load, args=(daemon, over, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    try:
        seen = [postroomd(daemon, "verify") for _ in range(10)]
    finally:
        over.set()
        for worker in workers:
            worker.join()
    assert all(code == 0 and report["running"] for code, report in seen), seen
    assert not [report["findings"] for _, report in seen if report["findings"]]
    events = [report["asOfEvent"] for _, report in seen]
    assert events == sorted(set(events)) and seen[-1][1]["messages"] > 0
    code, refused = postroomd(daemon, "repair", "--apply")
    assert code == 1 and "stop it first" in refused["error"]
    daemon.kill()
    code, report = postroomd(daemon, "verify", "--deep")
    assert (code, report["running"]) == (0, False) and {"store-behind"} >= report["counts"].keys(), report
