"""From the files as a crash has left them to the state that the journal tells.

Each file says by its name up to which event it has come, so that the journal is folded into those only that lack an
event. What a power cut has taken out of a file that has come far enough is put back from the events that pass by.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...model.principal import stored_account
from ...model.records import CLAIM, Entry, claim_fact, with_failure
from ...platform.quarantine import Quarantine
from . import content as fs_content
from .files import MessageFiles
from .found import Scan
from .index import Index

log = logging.getLogger(__name__)


class Replay:
    """From the opening of the store until the journal's end is folded. What is put back waits in ``healed``, ``bodies``
    and ``histories``, so that all of a file is written at once."""

    def __init__(self, found: Scan, files: MessageFiles, index: Index, quarantine: Quarantine) -> None:
        self.found = found
        self.healed: dict[str, Entry] = {}
        self.bodies: dict[str, bytes] = {}
        self.histories: dict[str, list[Any]] = {}
        self.claims: dict[str, str] = {}  # by message: the fact of what it claims for as long as it is in its queue
        self._files = files
        self._index = index
        self._quarantine = quarantine

    def already_applied(self, event: Event) -> bool:
        """Whether a message's file already shows an event, or did before a power cut: it is then put back."""
        if event["id"] > self.found.newest or "key" not in event:
            return False
        key = event["key"]
        if event["type"] == EventType.PUBLISHED and "claim" in event and not event["claim"].get("untilEngineMs"):
            self.claims[key] = claim_fact(event["queue"], event["claim"]["name"])
        if event["id"] > self.found.version_of(key, self._index):
            return False
        if key in self._index.places:
            self._heal(key, event)
        return True

    def entry(self, key: str) -> Entry:
        """The entry of a message that has a file, with what was put back."""
        return self.healed.get(key) or self._files.entry(key)

    def _heal(self, key: str, event: Event) -> None:
        if event["type"] == EventType.PUBLISHED:
            envelope = raw_json(event["message"])
            content = self._files.content(key)
            if fs_content.envelope_of(content, key) != envelope:
                entry = self._with_told(self.entry(key), event)
                if self._is_kept(key, content, fs_content.first_line(entry, envelope)):
                    log.warning("%s: its file is damaged; it is written anew from the journal", key)
                    self.bodies[key], self.healed[key] = envelope, entry
        elif key in self.found.lacking and event["id"] > self.found.lacking[key]:
            entry = self.healed[key] = self.entry(key)
            if entry.state is State.INFLIGHT and event["type"] == EventType.LEASED:
                entry.lease_id, entry.consumer_id = event["lease"], event["consumer"]
                entry.holder_uid = stored_account(event)
            if event["type"] == EventType.DIED and entry.state is State.DEAD:
                entry.reason = str(event["failure"]["reasonCode"])
            if "failure" in event:
                self.histories[key] = with_failure(self.histories.get(key) or self._files.history(key) or [], event)

    def _with_told(self, entry: Entry, event: Event) -> Entry:
        """An entry with what its name had no room for, and its damaged file has lost."""
        name = self.found.name_of(entry.key, self._index)
        if name and name.is_inside("target"):
            entry.target = event.get("target", "")
        if name and name.is_inside("order_key"):
            entry.order_key = event.get("orderingKey", "")
        if name and name.is_inside("claim"):
            entry.claim = event["claim"]["name"] if "claim" in event else ""
        return entry

    def _is_kept(self, key: str, content: bytes, expected: bytes) -> bool:
        """Whether nothing is lost with a file that is written over: it is the beginning of what it should be, as a
        power cut leaves it, or is kept in quarantine."""
        if expected.startswith(content.rstrip(b"\0")):
            return True
        try:
            self._quarantine.keep(key.replace("/", "%2F")[:100], content, "the damaged file of a message")
        except OSError as error:
            log.error("quarantine: %s: %s", self._files.path(key), error)
            return False
        return True


def claims_by_message(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts of what messages claim without an end, by their keys."""
    claims = (name for name in facts if name.startswith(CLAIM))
    return {facts[name]["key"]: name for name in claims if not facts[name]["untilEngineMs"]}
