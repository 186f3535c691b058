"""What a start of the filesystem store does: it puts in order what hands, copies and crashes have left, and folds the
journal into the files that lack an event.

Each file's name records its last event. What a power cut has taken out of a file that is far enough comes back from the
events that are folded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from postroom_common.events import Event, EventType, raw_json
from postroom_common.protocol import State

from ...model.facts import CLAIM, FACT_LOSSES, claim_fact, with_failure, with_loss
from ...model.lifecycle import removes
from ...model.principal import stored_account
from ...model.records import Entry, QueueRecord
from ...platform.quarantine import Quarantine
from ..base import Store
from ..errors import StoreErrors
from ..gathering import note_gathering_message
from ..recovery import Audit, FileFinding, FileProblem, Folded, Recovery
from . import content as fs_content
from .files import ASIDE_LIMIT, MessageFiles
from .index import Index
from .names import LETTERS, READY, queue_directory, read_name
from .places import Places
from .scan import Scan, ScanFinding, owners, scan
from .tree import Tree

log = logging.getLogger(__name__)

#: Foreign files that are named in the log at most.
NAMED_LIMIT: Final = 20
#: How often everything is listed again after something was put back: what was in the way hides what is behind it.
ROUNDS: Final = 4


#: Events that may make a claim of a message.
_CLAIMING: Final = (EventType.PUBLISHED, EventType.PART_SET)


class Cleanup:
    """Puts in order what hands, copies and crashes have left. Calls may raise ``OSError``."""

    def __init__(self, tree: Tree, quarantine: Quarantine, meta: str) -> None:
        self._tree = tree
        self._quarantine = quarantine
        self._meta = meta

    def run(self, index: Index, durable: int, expected: Mapping[str, int]) -> Scan:
        """List all files, and put in order what can be without the journal. See ``scan`` for the arguments."""
        owner_of = owners(self._tree, self._meta)
        self._name_back(owner_of)
        for _ in range(ROUNDS):
            found = scan(self._tree, index, self._meta, durable, expected, owner_of)
            settled = [self._try_to_settle(finding) for finding in found.findings]
            if True not in settled:
                break
        self._report(found)
        return found

    def _name_back(self, owner_of: dict[str, str]) -> None:
        """Directories whose queue has no directory were renamed."""
        for directory, owner in list(owner_of.items()):
            right = queue_directory(owner, self._meta) if owner else directory
            if right not in owner_of:
                log.error("%s is the directory of queue %r: it is named %s again", directory, owner, right)
                try:
                    self._tree.rename_directory(directory, right)
                except OSError as error:
                    log.error("%s: %s", self._tree.root / directory, error)
                    continue
                owner_of[right] = owner_of.pop(directory)

    def _try_to_settle(self, finding: ScanFinding) -> bool:
        try:
            return self._settle(finding)
        except OSError as error:  # it stays where it is, and does not count
            log.error("%s: %s", self._tree.root / finding.path, error)
            return False

    def _settle(self, finding: ScanFinding) -> bool:
        """Whether everything must be listed again."""
        tree, (kind, directory, place, key, queue) = self._tree, finding
        path = tree.root / finding.path
        if kind == "second":
            log.error("%s has two files: %s tells less, and is set aside", key, path)
            self._set_aside(path, "a second file of a message")
        elif kind == "temporary":
            tree.unlink(directory, place)  # its message is in the journal
        elif kind == "blocking":
            log.error("%s is in the way of a directory, and is set aside", path)
            self._set_aside(path, "it was in the way of a directory")
            return True
        elif kind == "misplaced" and queue:
            return self._give_back(finding)
        return False

    def _give_back(self, finding: ScanFinding) -> bool:
        """A file that lies in another queue's directory."""
        name = read_name(finding.place.rpartition("/")[2])
        assert name is not None
        path, right = self._tree.root / finding.path, queue_directory(finding.queue, self._meta)
        log.error("%s is %s, a message of queue %r, and is put back", path, finding.key, finding.queue)
        if finding.directory == right or not self._tree.move(finding.directory, finding.place, right, name.letter):
            self._set_aside(path, "its name is another message's")
        return True

    def _set_aside(self, path: Path, reason: str) -> None:
        self._quarantine.move_in(path, reason, path.name[:ASIDE_LIMIT])

    def put_back(self, key: str, index: Index, files: MessageFiles, clean: bool) -> bool:
        """A file lies in another folder than its name says. It is put back, unless that is to become true: False."""
        place = index.places.get(key) or ""
        name = place.rpartition("/")[2]
        letter = self._tree.letter_of(place)
        if not place or name[0] == letter:
            return True  # what was folded has brought it where it belongs
        if clean and letter == READY and name[0] == LETTERS[State.DEAD]:
            return False
        directory = files.directory_of(key)
        log.error("%s/%s does not belong there, and is put back", directory, place)
        index.places[key] = self._tree.rename(directory, place, directory, name[0], name)
        return True

    def _report(self, found: Scan) -> None:
        foreign = [finding.path for finding in found.findings if finding.kind == "foreign"]
        if foreign:
            shown = ", ".join(foreign[:NAMED_LIMIT])
            log.warning("%s: %d files are no messages, and left alone: %s", self._tree.root, len(foreign), shown)


class Replay:
    """From the opening of the store until the journal's end is folded. What is put back waits in ``healed``,
    ``bodies``, ``histories`` and ``parts``, so that all of a file is written at once."""

    def __init__(
        self, found: Scan, expected: dict[str, int], files: MessageFiles, places: Places, quarantine: Quarantine
    ) -> None:
        self.found = found
        self.expected = expected  # how many messages each queue should have, by the checkpoint and the events since
        self.healed: dict[str, Entry] = {}
        self.bodies: dict[str, bytes] = {}
        self.histories: dict[str, list[Any]] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.claims: dict[str, str] = {}  # by message: the fact of what it claims for as long as it is in its queue
        self.files = files
        self._places = places
        self._quarantine = quarantine

    def already_applied(self, event: Event) -> bool:
        """Whether a message's file already shows an event, or did before a power cut: it is then put back."""
        if "key" not in event:
            return False
        self._expect(event)
        if event["id"] > self.found.newest:
            return False
        key = event["key"]
        claim = event["claim"] if event["type"] in _CLAIMING and "claim" in event else {}
        if "name" in claim and not claim.get("untilEngineMs"):
            self.claims[key] = claim_fact(event["queue"], claim["name"])
        if event["id"] > self.found.version_of(key, self._places):
            return False
        if key in self._places:
            self._heal(key, event)
        return True

    def _expect(self, event: Event) -> None:
        expected, queue = self.expected, str(event["queue"])
        to = str(event.get("to", queue))
        if removes(event) or to != queue:
            expected[queue] = expected.get(queue, 0) - 1
        if event["type"] == EventType.PUBLISHED or to != queue:
            expected[to] = expected.get(to, 0) + 1

    def entry(self, key: str) -> Entry:
        """The entry of a message that has a file, with what was put back."""
        return self.healed.get(key) or self.files.entry(key)

    def _heal(self, key: str, event: Event) -> None:
        if event["type"] == EventType.PUBLISHED:
            envelope = raw_json(event["message"])
            content = self.files.content(key)
            if fs_content.envelope_of(content, key) is None:  # what is intact and another one was set later
                entry = self._with_told(self.entry(key), event)
                if self._is_kept(key, content, fs_content.first_line(entry, envelope)):
                    log.warning("%s: its file is damaged; it is rewritten from the journal", key)
                    self.bodies[key], self.healed[key] = envelope, entry
        elif event["type"] in (EventType.PART_APPENDED, EventType.PART_SET):
            number, part = event["part"], raw_json(event["content"])
            is_there = self.files.parts(key).get(number) == part and number not in self.parts.get(key, {})
            if number <= self.entry(key).parts and not is_there:
                self.parts.setdefault(key, {})[number] = part  # a later event may set it again
                self.healed[key] = self.entry(key)
        else:
            self._heal_others(key, event)

    def _heal_others(self, key: str, event: Event) -> None:
        if "message" in event:  # another body
            body = raw_json(event["message"])
            if fs_content.envelope_of(self.files.content(key), key) != body or key in self.bodies:
                self.bodies[key] = body
                self.healed[key] = self.entry(key)
        if key in self.found.lacking and event["id"] > self.found.lacking[key]:
            entry = self.healed[key] = self.entry(key)
            if entry.state is State.INFLIGHT and event["type"] == EventType.LEASED:
                entry.lease_id, entry.consumer_id = event["lease"], event["consumer"]
                entry.holder_uid = stored_account(event)
            if event["type"] == EventType.DIED and entry.state is State.DEAD:
                entry.reason = str(event["failure"]["reasonCode"])
            if "failure" in event:
                self.histories[key] = with_failure(self.histories.get(key) or self.files.history(key) or [], event)

    def _with_told(self, entry: Entry, event: Event) -> Entry:
        """An entry with what its name had no room for, and its damaged file has lost."""
        name = self.found.name_of(entry.key, self._places)
        if name and name.is_inside("target"):
            entry.target = event.get("target", "")
        if name and name.is_inside("order_key"):
            entry.order_key = event.get("orderingKey", "")
        if name and name.is_inside("name"):
            entry.name = event.get("name", "")
        if name and name.is_inside("claim"):
            entry.claim = event["claim"]["name"] if "claim" in event else ""
        return entry

    def _is_kept(self, key: str, content: bytes, expected: bytes) -> bool:
        """Whether nothing is lost with a file that is written over: it is the beginning of what it should be, as a
        power cut leaves it, or is in quarantine."""
        if expected.startswith(content.rstrip(b"\0")):
            return True
        try:
            self._quarantine.add(key.replace("/", "%2F")[:100], content, "the damaged file of a message")
        except OSError as error:
            log.error("quarantine: %s: %s", self.files.path(key), error)
            return False
        return True


def claims_by_message(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts of what messages claim without an end, by their keys."""
    claims = (name for name in facts if name.startswith(CLAIM))
    return {facts[name]["key"]: name for name in claims if not facts[name]["untilEngineMs"]}


class FilesystemRecovery(Recovery):
    """The recovery of a store; ``replay`` is there from its opening until the journal's end is folded."""

    def __init__(self, store: Store, tree: Tree, index: Index, cleanup: Cleanup, flush: Callable[[], None]) -> None:
        self._store = store
        self._flush = flush
        self._tree = tree
        self._index = index
        self._cleanup = cleanup
        self.replay: Replay | None = None

    def begin(self, replay: Replay) -> None:
        """The store is open."""
        self.replay, self.replaying = replay, True

    def already_applied(self, event: Event) -> bool:
        replay = self.replay
        if replay is None:
            return False
        with StoreErrors(self._tree.root):
            applied = replay.already_applied(event)
        if applied and event.get("to", event["queue"]) != event["queue"]:
            self._has_moved(event, replay)
        if applied and "gathering" in event:
            note_gathering_message(event, self._store)
        return applied

    def _has_moved(self, event: Event, replay: Replay) -> None:
        """What else follows from a move that a message's file shows already; see ``fold_messages``."""
        store = self._store
        if store.queue(event["to"]) is None:
            store.add_queue(QueueRecord(event["to"], created_wall=event["wallMs"]))
        store.queue_for_update(event["to"]).used = event["engineMs"]
        name = replay.claims.pop(event["key"], "")
        if name and (store.facts.get(name) or {}).get("key") == event["key"]:
            store.facts.put(name, None)

    def finish_replay(self, clean: bool) -> list[str]:
        store, replay = self._store, self.replay
        if replay is None:
            return []
        found = replay.found
        if found.newest > store.applied:  # the journal has lost these events; some show in files
            losses = store.facts.get(FACT_LOSSES) or []
            for first, last in self.unfolded(store.applied):
                losses = with_loss(losses, first, last)
            store.facts.put(FACT_LOSSES, losses or None)
            store.applied = found.newest
        for name in sorted(filter(found.count_of, found.numbers)):
            if store.queue(name):
                continue
            log.error("queue %r has messages and no record: it gets a new one", name)
            store.add_queue(QueueRecord(name))
        for entry in list(replay.healed.values()):
            store.update(entry, entry.state)
        self.missing = sum(self._missing(replay.expected))
        store.commit()
        self._flush()
        self.replay, self.replaying = None, False
        with StoreErrors(self._tree.root):
            files = replay.files
            moved = [key for key in found.misplaced if not self._cleanup.put_back(key, self._index, files, clean)]
            entries = sorted((files.entry(key) for key in moved), key=lambda e: (e.dead_at, e.seq))
        files.end()
        return [entry.key for entry in entries]

    def unfolded(self, last: int) -> list[list[int]]:
        """See ``Audit.unfolded``."""
        newest = self.replay.found.newest if self.replay else 0
        ranges, expected = [], last + 1
        for shown in sorted({*self._events_in_files(last), newest}):
            if shown > expected:
                ranges.append([expected, shown - 1])
            expected = shown + 1
        return ranges

    def _events_in_files(self, after: int) -> set[int]:
        """The events behind ``after`` that are the last ones of messages."""
        places = self._index.places
        names = (read_name(places[key].rpartition("/")[2]) for key in places.listing().behind(""))
        return {name.version for name in names if name and name.version > after}

    def _missing(self, expected: Mapping[str, int]) -> Iterator[int]:
        for name, count in expected.items():
            record = self._store.queue(name)
            missing = count - (sum(record.counts.values()) if record else 0)
            if missing > 0:
                log.error("queue %r has %d messages fewer than before: files were removed", name, missing)
                yield missing


class FilesystemAudit(Audit):
    """What was found among a store's files, between ``open`` and ``Recovery.finish_replay``."""

    def __init__(self, store: Folded, recovery: FilesystemRecovery, tree: Tree, file_of: Callable[[str], Path]) -> None:
        super().__init__(store)
        self._recovery = recovery
        self._tree = tree
        self._file_of = file_of

    def _findings(self) -> list[ScanFinding]:
        return self._recovery.replay.found.findings if self._recovery.replay else []

    def newest_event(self) -> int:
        newest = self._recovery.replay.found.newest if self._recovery.replay else 0
        return max(self._folded.applied, newest)

    def unfolded(self, last: int) -> list[list[int]]:
        return self._recovery.unfolded(last) if self.newest_event() > last else []

    def file_of(self, key: str) -> Path | None:
        return self._file_of(key)

    def file_findings(self, last: int, clean: bool) -> Iterator[FileFinding]:
        for path in self.foreign_files():
            yield FileFinding(FileProblem.FOREIGN, str(path), "no message's file")
        for finding in self._findings():
            if finding.kind != "misplaced":
                continue
            place = str(self._tree.root / finding.path)
            if clean and not finding.queue and self._is_dead_among_ready(finding.place):
                yield FileFinding(FileProblem.MOVED_BY_HAND, place, f"{finding.key} is a dead letter")
            else:
                text = f"{finding.key} belongs into another directory, as its name says"
                yield FileFinding(FileProblem.MISPLACED, place, text)

    def _is_dead_among_ready(self, place: str) -> bool:
        return (place.rpartition("/")[2][0], self._tree.letter_of(place)) == (LETTERS[State.DEAD], READY)

    def foreign_files(self) -> list[Path]:
        return [self._tree.root / one.path for one in self._findings() if one.kind == "foreign"]
