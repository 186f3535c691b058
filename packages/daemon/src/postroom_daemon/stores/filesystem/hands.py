"""What hands, copies and crashes have left in the filesystem store is put in order, before or after the journal is
folded: set aside what is in the way or stands for a message twice, put back what lies elsewhere than it says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from postroom_common.protocol import State

from ...platform.quarantine import Quarantine
from .files import ASIDE_LIMIT, MessageFiles
from .found import Scan, ScanFinding
from .index import Index
from .names import LETTERS, READY, queue_directory, read_name
from .scan import owners, scan
from .tree import Tree

log = logging.getLogger(__name__)

#: Files that are none of ours are named in the log up to so many.
NAMED_LIMIT: Final = 20
#: How often all is looked at anew, since something was put back: what was in the way hides what lies behind it.
ROUNDS: Final = 4


class Hands:
    """Calls may raise ``OSError``."""

    def __init__(self, tree: Tree, quarantine: Quarantine, meta: str) -> None:
        self._tree = tree
        self._quarantine = quarantine
        self._meta = meta

    def settle(self, make_index: Callable[[], Index], durable: int, expected: Mapping[str, int]) -> tuple[Index, Scan]:
        """Look at all files, and put in order what can be without the journal. See ``scan`` for the arguments."""
        owner_of = owners(self._tree, self._meta)
        self._name_back(owner_of)
        for _ in range(ROUNDS):
            index = make_index()
            found = scan(self._tree, index, self._meta, durable, expected, owner_of)
            settled = [self._try_to_settle(finding) for finding in found.findings]
            if True not in settled:
                break
        self._report(found, durable, expected)
        return index, found

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
        """Whether all must be looked at anew."""
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
        self._quarantine.keep_file(path, reason, path.name[:ASIDE_LIMIT])

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

    def _report(self, found: Scan, durable: int, expected: Mapping[str, int]) -> None:
        strangers = [finding.path for finding in found.findings if finding.kind == "stranger"]
        if strangers:
            shown = ", ".join(strangers[:NAMED_LIMIT])
            log.warning("%s: %d files are no messages, and left alone: %s", self._tree.root, len(strangers), shown)
        if found.newest > durable:
            return
        for queue, count in expected.items():
            missing = count - found.count_of(queue)
            if missing > 0:
                log.error("queue %r has %d messages fewer than before: files were removed", queue, missing)
