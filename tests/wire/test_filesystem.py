"""A real daemon on the filesystem store: few descriptors, full folders, files that are moved while it works."""

from __future__ import annotations

import shutil
from pathlib import Path

from postroom_client import Client
from tests.wire.conftest import MakeDaemon, on_stores
from tests.wire.daemon import PATIENCE_S, Daemon

FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
#: As many as a folder keeps itself.
FULL = 10_000

pytestmark = on_stores("filesystem")


def folder(daemon: Daemon, name: str, queue: str = "q") -> Path:
    return daemon.root / "data" / "fs" / queue / name


def test_64_descriptors_are_enough_for_full_folders_and_several_clients(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(wrapper=FEW_DESCRIPTORS)
    folder(daemon, "inbox").mkdir(parents=True)
    for number in range(1, FULL + 1):  # of a lower priority, so that nobody asks for what is in them
        name = f"p80000000-{number:015d}-{number:08x}-0000-7000-8000-000000000000~v{number}~w1~b1.json"
        (folder(daemon, "inbox") / name).touch()
    daemon.start()
    daemon.freeze()
    sent = [daemon.send("publish", {"queue": "q", "message": str(number)}) for number in range(300)]
    daemon.thaw()
    for one in sent:
        assert daemon.answer(one)["ok"]
    daemon.wait_for_store()
    assert len(list((folder(daemon, "inbox") / "00001").iterdir())) == len(sent)
    clients = [Client(str(daemon.ipc), client_id=f"client-{number}", timeout=PATIENCE_S) for number in range(8)]
    try:
        for client in clients:
            delivery = client.consume_next("q")
            assert delivery
            client.ack(delivery)
            client.publish("q", "more")
        daemon.restart(kill=True)
        for client in clients:
            delivery = client.consume_next("q")
            assert delivery
            client.ack(delivery)
    finally:
        for client in clients:
            client.close()
    assert daemon.counts("q") == {"ready": FULL + len(sent) - 8}
    assert "Too many open files" not in daemon.log()


def test_files_that_are_moved_and_removed_while_it_works_cost_no_other_message(daemon: Daemon) -> None:
    daemon.audited = False  # what was removed dies, and is found to be gone
    keys = [daemon.publish("q", str(number)) for number in range(6)]
    daemon.publish("other", "elsewhere")
    daemon.wait_for_store()
    files = sorted(folder(daemon, "inbox").iterdir())
    files[0].unlink()
    shutil.move(files[1], folder(daemon, "inbox", "other"))
    shutil.move(files[2], folder(daemon, "inbox").parent / "aside")
    found = []
    while (answer := daemon.ask("consume_next", queue="q"))["message"]:
        found.append(answer["message"]["payload"])
        daemon.settle("ack", answer)
    assert found == ["3", "4", "5"]
    assert {letter["messageKey"] for letter in daemon.ask("list_dlq", queue="q")["messages"]} <= set(keys[:3])
    assert daemon.consume("other")["message"]["payload"] == "elsewhere"
    assert (folder(daemon, "inbox").parent / "aside").exists()
    assert daemon.ask("health")["status"] == "degraded"  # their messages are lost, until an operator accepts it


def test_queues_with_names_too_long_for_a_directory_survive_a_restart(daemon: Daemon) -> None:
    """A name is cut where it has room, if need be in the midst of a character."""
    names = [letters * 40 for letters in ("\uabcd", "a\uabcd", "ab\uabcd", "\u00e9\U0001f4ee")]
    for name in names:
        daemon.publish(name, "here")
    (daemon.root / "data" / "fs" / "%EA-made-by-hand").mkdir()
    daemon.restart(kill=True)
    assert [daemon.consume(name)["message"]["payload"] for name in names] == ["here"] * len(names)
