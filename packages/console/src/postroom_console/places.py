"""Where a daemon's mailbox, journal and traffic log are, and a client of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from postroom_client import Client


@dataclass(frozen=True, slots=True)
class Places:
    """``name`` is what the screen calls the device until the daemon tells its own name."""

    ipc: Path
    journal: Path | None
    traffic: Path | None
    name: str

    def make_client(self) -> Client:
        """A client whose id tells consoles from other programs in the traffic log."""
        return Client(str(self.ipc), client_id=f"console-{os.geteuid()}-{os.getpid()}")


def find_places(
    root: Path | None, ipc: Path | None = None, journal: Path | None = None, traffic: Path | None = None
) -> Places:
    """The places below ``root``, unless they are given. Without a root, that of the mailbox's parent directory."""
    base = root if root else (ipc.absolute().parent if ipc else Path())
    return Places(
        ipc or base / "ipc",
        journal or base / "journal",
        traffic or base / "traffic",
        base.absolute().name or str(base.absolute()),
    )
