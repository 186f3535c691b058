"""The payload files of the hybrid store brought into order: each where its message looks for it, all others aside."""

from __future__ import annotations

from pathlib import Path

from ...platform.files import Files
from ...stores.hybrid.payload_audit import PayloadFindingKind
from ...stores.hybrid.payload_names import PayloadName, shard_of
from ...stores.hybrid.store import HybridStore
from .report import Say


def put_back(store: HybridStore, root: Path, files: Files, say: Say) -> None:
    """Move files to where their messages look for them. Raises ``StoreError``, ``OSError``."""
    found = list(store.audit(contents=False))
    missing = {one.path for one in found if one.kind is PayloadFindingKind.MISSING}
    for one in found:
        if one.kind is PayloadFindingKind.MISPLACED:
            name = PayloadName.read(one.path)
            right = str(name._replace(shard=shard_of(name.seq)))
            if right in missing:
                _move(root / one.path, root / right, files)
                say(f"{one.path}: put back to {right}")


def set_aside(store: HybridStore) -> None:
    """Move files that belong to no message to quarantine. Raises ``StoreError``."""
    for one in list(store.audit(contents=False)):
        if one.kind in (PayloadFindingKind.ORPHAN, PayloadFindingKind.STRAY, PayloadFindingKind.MISPLACED):
            store.set_orphan_aside(one.path)


def _move(path: Path, target: Path, files: Files) -> None:
    """Durably."""
    directory = files.open_directory(target.parent)
    try:
        files.rename(path, target.name, dst_dir_fd=directory)
        files.fsync(directory)
    finally:
        files.close(directory)
