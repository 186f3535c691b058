"""An action that is slow on purpose is stopped."""

from __future__ import annotations

from postroom_console.data.actions import reprocess_all
from tests.console.desk import Desk, sit_down
from tests.wire.daemon import Daemon, receipt


def test_a_slow_action_is_stopped_from_the_log_and_its_progress_is_reported(daemon: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        for number in range(3):
            daemon.publish("alarms", number)
            daemon.ask("nack", **receipt(daemon.consume("alarms")), requeue=False)
        desk.console.propose(reprocess_all("alarms", {}, rate=0.001))
        await desk.sees("3 messages are affected")
        await desk.keys("y")
        await desk.waits(lambda: daemon.events("reprocessed"), "the first one is reprocessed")
        await desk.keys("6")
        await desk.sees("running")
        await desk.keys("c")
        await desk.sees("reprocess alarms -> stopped 1")
        assert daemon.counts("alarms") == {"ready": 1, "dlq": 2}
        await desk.keys("c")
        await desk.sees("nothing is running")

    sit_down(daemon, visit, size=(120, 24))
