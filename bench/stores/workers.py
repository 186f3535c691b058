"""The processes of the queues, for the contest."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from ..daemon import die_with_parent

_ROOT = Path(__file__).resolve().parents[2]
_STOP_TIMEOUT_S = 60.0


class QueueMissing(Exception):
    """A queue cannot be measured here; the text says why."""


class QueueProcess:
    """One queue in a process of its own. ``python`` runs it. Raises ``QueueMissing`` when its package is not there."""

    def __init__(self, python: Path, kind: str, directory: Path) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [python, "-m", "bench.stores.worker", kind, directory.resolve()],
            cwd=_ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTROOM_"))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread is running here
        )
        self.versions: dict[str, str] = self.answer()
        if "missing" in self.versions:
            self.close()
            raise QueueMissing(self.versions["missing"])

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send an order; its answer. Raises ``RuntimeError`` if it fails."""
        self.begin(do, **arguments)
        return self.answer()

    def begin(self, do: str, **arguments: Any) -> None:
        """One order; its ``answer`` must be fetched before the next."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to the order that was begun. Raises ``RuntimeError`` if it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended with {self._process.wait()}"}
        if "error" in answer:
            raise RuntimeError(f"{self.kind}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Stop it cleanly, or kill it if it does not stop."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.close()
