"""Commands on a stopped root, without a daemon or a mailbox."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from postroom_common.codec import Request as WireRequest

from ..config.config import Config
from ..doors.mailbox.codec import plain
from ..model.principal import Principal
from ..model.request import Answer, Request
from ..platform.clock import Clock
from ..root.open_root import OpenRoot, Sources, StartError, open_root
from ..stores.errors import StoreError

log = logging.getLogger(__name__)

__all__ = ["LocalRoot", "StartError", "open_local"]


class LocalRoot:
    """A root that this process has opened, and on which it carries out commands."""

    def __init__(self, root: OpenRoot) -> None:
        self._root = root
        self._count = 0

    def call(self, command: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command, durably. Returns the data of its answer. Raises ``CommandError``."""
        answers: list[Answer] = []
        self._count += 1
        wire = WireRequest(f"local-{os.getpid()}-{self._count}", "local", command, 0, payload)
        who, made_ms = Principal("local", os.geteuid()), time.time_ns() // 1_000_000
        self._root.broker.submit(Request(wire, who, None, made_ms, answers.append))
        self._root.broker.run_group()
        while not answers:  # a long poll
            due = self._root.broker.next_due() or 0
            time.sleep(max(0.0, (due - self._root.clock.now().engine) / 1000))
            self._root.broker.run_group()
        if answers[0].error:
            raise answers[0].error
        return plain(answers[0].data or {})

    def settle(self) -> None:
        """Carry out all periodic tasks that are due."""
        while (due := self._root.broker.next_due()) is not None and due <= self._root.clock.now().engine:
            self._root.broker.run_group()

    def accept_losses(self) -> list[list[int]]:
        """See ``Broker.accept_losses``."""
        return self._root.broker.accept_losses()

    def damage(self) -> list[dict[str, Any]]:
        """See ``Broker.damage``."""
        return self._root.broker.damage()


@contextmanager
def open_local(config: Config, still: bool = False) -> Iterator[LocalRoot]:
    """Open a root that no daemon serves. ``still``: periodic tasks that are due are carried out first, and then time
    does not pass. Raises ``StartError``."""
    os.umask(0o022)
    root = open_root(config, Sources(clock=Clock.still) if still else Sources())
    try:
        local = LocalRoot(root)
        if still:
            local.settle()
        yield local
        root.broker.stop()
        try:
            root.store.disk.checkpoint()
        except StoreError as error:  # the journal has all of it
            log.warning("%s", error)
    finally:
        root.close()
