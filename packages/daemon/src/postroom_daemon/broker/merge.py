"""Decides a request on the open transaction, whatever becomes of messages that cannot be delivered: those whose body is
lost die of it, those whose time is over get what they are to get then, and the next one is looked at."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from postroom_common.errors import CommandError
from postroom_common.protocol import Command, ErrorCode

from ..engine.context import Context, Decision, no_message
from ..engine.decide import decide, decide_lost
from ..engine.verbs.consume import TimeOver
from ..model.principal import Principal
from ..model.records import FACT_DRAINING
from ..platform.clock import Now
from ..platform.logs import about
from ..stores.base import BodyLost, BodyUnread
from .engine_state import Parts
from .group import Group
from .periodic_tasks.ttl import lapsed

log = logging.getLogger(__name__)

#: Messages without a body, or whose time is over, that one request passes over.
LOST_LIMIT: Final = 100


class Decider:
    """See the module. What it has to record of messages that are passed over goes into ``group``."""

    def __init__(self, parts: Parts, now: Now, group: Group) -> None:
        self._parts = parts
        self._now = now
        self._group = group
        self._draining: bool | None = None  # unknown: it is asked for once, for all requests of the group

    def decide(self, command: Command, payload: dict[str, Any], who: Principal) -> Decision:
        """What a request comes to. A message whose body the disk has often not given dies as well. Raises
        ``CommandError``."""
        context = self._context(who)
        unread, lapses = self._parts.unread, 0
        for _ in range(LOST_LIMIT):
            try:
                return decide(command, payload, context)
            except (BodyLost, BodyUnread) as error:
                log.error("%s", error, extra=about(key=error.key))
                if isinstance(error, BodyUnread) and not unread.note(error.key, self._now.engine):
                    raise CommandError(ErrorCode.STORAGE_FAILED, f"nothing was changed: {error}") from error
                self._group.record([decide_lost(context, error.key)])
            except TimeOver as error:
                entry = self._parts.store.get(error.key)
                assert entry is not None
                self._group.record(lapsed(self.context(), entry))
                lapses += 1
        if lapses:  # there are many more, which the next groups see to
            return Decision(data=no_message(payload))
        raise CommandError(ErrorCode.STORAGE_FAILED, "the bodies of many messages are lost: see the daemon's log")

    def bury(self, keys: Iterable[str]) -> None:
        """Let messages die whose bodies are lost."""
        context = self.context()
        for key in keys:
            self._group.record([decide_lost(context, key)])

    def context(self) -> Context:
        """The context of what the daemon does by itself."""
        return self._context(Principal("", self._parts.daemon_uid))

    def draining_changed(self) -> None:
        """A request has begun or ended the draining, or may have."""
        self._draining = None

    def _context(self, who: Principal) -> Context:
        parts = self._parts
        if self._draining is None:
            self._draining = bool(parts.store.get_kv(FACT_DRAINING))
        return Context(
            parts.store,
            self._now,
            who,
            parts.policies,
            parts.vitals,
            parts.ids,
            parts.access,
            parts.quotas,
            parts.rounds,
            draining=self._draining,
            rates=parts.rates,
            waiters=parts.waiters,
            addresses=parts.addresses,
        )
