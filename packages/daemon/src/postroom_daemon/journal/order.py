"""Bring the files of a journal into order before it is opened: each a file of this root, named by its first event, none
twice. Other files are moved to quarantine; no byte of an event is changed.

Somebody may have copied, renamed or swapped files. A reader that goes by their names must neither miss events nor read
those of another root.
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from postroom_common.events import JOURNAL_FORMAT

from ..platform.files import Files
from ..platform.quarantine import Quarantine
from ..stores.errors import StoreError
from .segments import (
    UNREADABLE_ERRNOS,
    Span,
    is_segment_name,
    list_segments,
    list_strangers,
    read_lines,
    read_span,
    segment_name,
)

log = logging.getLogger(__name__)

#: Suffix of a segment between its wrong name and its right one.
MOVED_SUFFIX: Final = ".moved"
#: Lines at the beginning of a segment that include its clock mark.
_HEAD_LINES: Final = 4


class Foreign(StoreError):
    """This version, or this store, cannot continue the journal."""


class Owner(NamedTuple):
    """The root whose events the store has folded, its epoch, and the last of them."""

    root: str
    epoch: int
    applied: int


class _Found(NamedTuple):
    """A segment with events. ``named`` is the id in its name, 0 if it is being renamed; ``root`` and ``epoch`` are from
    its beginning, empty and 0 if that is damaged."""

    path: Path
    named: int
    span: Span
    root: str
    epoch: int


def bring_into_order(root: Path, directory: int, owner: Owner | None, files: Files, quarantine: Quarantine) -> None:
    """Bring the files into order, durably. ``directory`` is an open descriptor of ``root``; ``owner`` None: no store.
    May be repeated after a crash.

    Raises ``OSError``; ``Foreign``, before anything is changed, for a newer format, or if no segment is the owner's.
    """
    found = _find(root)
    foreign = _foreign(root, found, owner)
    _set_strangers_aside(root, quarantine)
    for one in foreign:
        quarantine.move_in(one.path, f"of root {one.root}, which is another one's")
    wrong = _misnamed(_without_copies([one for one in found if one not in foreign], quarantine))
    for one in wrong:
        name = segment_name(one.span.first)
        if one.named:
            log.error("%s begins with event %d: it is renamed", one.path, one.span.first)
            files.rename(one.path.name, name + MOVED_SUFFIX, src_dir_fd=directory, dst_dir_fd=directory)
    for one in wrong:  # after all wrong names are free
        name = segment_name(one.span.first)
        quarantine.move_in(root / name, "no intact event, under the name of another file")
        files.rename(name + MOVED_SUFFIX, name, src_dir_fd=directory, dst_dir_fd=directory)
    if wrong:
        files.fsync(directory)


def _find(root: Path) -> list[_Found]:
    """The segments in the order of their events. Those without a readable event are left out: only their names say
    where they belong."""
    paths = [(first, path) for first, path in list_segments(root)]
    paths += [(0, path) for path in root.glob("*" + MOVED_SUFFIX) if is_segment_name(path.name[: -len(MOVED_SUFFIX)])]
    found = []
    for named, path in paths:
        try:
            span = read_span(path)
            if span:
                found.append(_Found(path, named, span, *_head_of(path)))
        except OSError as error:
            if error.errno not in UNREADABLE_ERRNOS:
                raise
    # Of two with the same events, the one with the right name is first.
    return sorted(found, key=lambda one: (one.span.first, -one.span.last, one.named != one.span.first))


def _head_of(path: Path) -> tuple[str, int]:
    """The root and epoch at a segment's beginning. Raises ``OSError``, and ``Foreign`` for a newer format."""
    root, epoch = "", 0
    for line in islice(read_lines(path), _HEAD_LINES):
        event = line.event or {}
        if event.get("format", JOURNAL_FORMAT) > JOURNAL_FORMAT:
            raise Foreign(f"{path} has format {event['format']}, newer than this postroomd knows: upgrade it")
        if "root" in event and not root:
            root, epoch = event["root"], event["epoch"]
    return root, epoch


def _foreign(root: Path, found: list[_Found], owner: Owner | None) -> list[_Found]:
    """Segments of other roots that somebody has copied here. Each epoch has one root: the owner's, or the one of most
    segments."""
    with_root = [one for one in found if one.root]
    likely = [one for one in with_root if owner is None or _may_be_of(one, owner)]
    if with_root and not likely:
        raise Foreign(
            f"{root} is of root {with_root[0].root}, the store of another: put back the journal or the store that"
            " belongs here"
        )
    roots = {one.epoch: Counter(other.root for other in likely if other.epoch == one.epoch) for one in likely}
    return [one for one in with_root if one not in likely or one.root != roots[one.epoch].most_common(1)[0][0]]


def _may_be_of(one: _Found, owner: Owner) -> bool:
    if one.epoch == owner.epoch:
        return one.root == owner.root
    return one.epoch < owner.epoch or one.span.first > owner.applied


def _set_strangers_aside(root: Path, quarantine: Quarantine) -> None:
    """Move away directories, links and pipes with a segment's name."""
    for name in list_strangers(root):
        quarantine.move_in(root / name, "no file, where a file of the journal should be")


def _without_copies(found: list[_Found], quarantine: Quarantine) -> list[_Found]:
    kept: list[_Found] = []
    for one in found:
        if kept and one.span.last <= kept[-1].span.last:
            quarantine.move_in(one.path, f"a copy of events that {kept[-1].path.name} has")
        else:
            kept.append(one)
    return kept


def _misnamed(found: list[_Found]) -> list[_Found]:
    """Those whose name is not the id of their first event, or with a damaged beginning, of an earlier one."""
    wrong = []
    before = 0
    for one in found:
        span = one.span
        fits = one.named == span.first or (not span.whole_from_start and before < one.named < span.first)
        if not fits:
            wrong.append(one)
        before = span.last
    return wrong
