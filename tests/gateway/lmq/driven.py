"""A daemon whose time the test drives."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.machine import Machine
from tests.gateway.lmq.peers import CONFIG


class DrivenDaemon(Machine):
    """A daemon whose time passes only when the test says so."""

    def __init__(self, root: Path) -> None:
        super().__init__("lmq", root)
        self.ipc = root / "ipc"
        root.mkdir()
        (root / "config.json").write_text(json.dumps(CONFIG))

    def serve(self) -> DrivenDaemon:
        """Start it."""
        self.boot(wall_ms=1_795_811_841_655)
        return self
