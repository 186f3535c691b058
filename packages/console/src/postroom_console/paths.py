"""The directories of a daemon, and a client for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from postroom_client import Client


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """``name`` is shown for the device until the daemon has reported its own."""

    ipc: Path
    journal: Path | None
    traffic: Path | None
    name: str

    def make_client(self) -> Client:
        """A client whose id marks the requests of consoles in the traffic log. The variables by which a daemon renames
        directories of its mailbox count here, too."""
        requests, responses, dead = (
            os.environ.get(f"POSTROOM_IPC_{name.upper()}_DIR") or name for name in ("requests", "responses", "dead")
        )
        return Client(
            str(self.ipc),
            client_id=f"console-{os.geteuid()}-{os.getpid()}",
            requests_dir=requests,
            responses_dir=responses,
            dead_dir=dead,
        )


def find_paths(
    root: Path | None, ipc: Path | None = None, journal: Path | None = None, traffic: Path | None = None
) -> DaemonPaths:
    """The directories below ``root``, unless they are given. Without a root, it is the parent of ``ipc``."""
    base = root if root else (ipc.absolute().parent if ipc else Path())
    return DaemonPaths(
        ipc or base / "ipc",
        journal or base / "journal",
        traffic or base / "traffic",
        base.absolute().name or str(base.absolute()),
    )
