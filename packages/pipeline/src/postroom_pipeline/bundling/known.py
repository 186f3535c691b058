"""Which snapshots bundles hold already."""

from __future__ import annotations

from pathlib import Path

from postroom_common.snapshot import SUFFIX
from postroom_common.snapshot_reader import check

from ..reasons import DUPLICATE, OTHER_CONTENT
from .members import Told
from .writer import PREFIX, members_of


class Known:
    """The snapshots of the bundles of a folder and of those that are made now, by id: about 200 bytes for each."""

    def __init__(self, folder: Path, *, thorough: bool) -> None:
        """:param thorough: read the bundle that is said to hold a snapshot before that is believed."""
        self._thorough = thorough
        self._digests: dict[str, str] = {}
        self._said: dict[str, Path] = {}
        for bundle in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")):
            self._said.update((snapshot, bundle) for snapshot in members_of(bundle))

    def add(self, told: Told) -> None:
        """One more is held."""
        self._digests[told.snapshot] = told.digest

    def fault(self, told: Told) -> str:
        """Why a snapshot is not taken: it is held, or another of its id is. Empty for one that is not held."""
        if self._thorough and told.snapshot in self._said:
            self._look_into(self._said[told.snapshot])
        digest = self._digests.get(told.snapshot)
        if digest is not None:
            return DUPLICATE if digest == told.digest else OTHER_CONTENT
        return DUPLICATE if told.snapshot in self._said else ""

    def _look_into(self, bundle: Path) -> None:
        """Believe what the bundle holds, not what it says."""
        self._said = {snapshot: place for snapshot, place in self._said.items() if place != bundle}
        with bundle.open("rb") as file:
            for member in check(file):
                if not member.reason:
                    self.add(Told.of(member))
