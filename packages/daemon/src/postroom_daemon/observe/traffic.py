"""The traffic log: one line per request, who asked for what and how it ended. Bounded, sampled, never synced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from ..model.principal import stored_account
from ..platform.files import Files
from ..platform.rotated import RotatedFiles
from .refusals import Refusals


class TrafficLog:
    """Files ``traffic/<number, 20 digits>.jsonl``, of which the last ``keep_files`` stay.

    ``sample_every`` n writes every n-th request; errors are always written, but of what each user is refused only as
    many as ``refusals`` admits. A disk that takes no line loses lines, no more: ``lost`` counts them.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        file_bytes: int,
        keep_files: int,
        sample_every: int,
        refusals: Refusals | None = None,
    ) -> None:
        self.lost = 0
        self.refusals = refusals or Refusals(0)
        self._out = RotatedFiles(root, files, file_bytes, keep_files)
        self.sample_every = sample_every
        self._seen = 0
        self._lines: list[bytes] = []

    def add(self, line: dict[str, Any], failed: bool, refused: bool = False) -> None:
        """Take a request's line; the next ``flush`` writes it. ``refused``: its account may not do that, or not all of
        it."""
        self._seen += 1
        if refused:
            suppressed = self.refusals.admit(stored_account(line), line["engineMs"])
            if suppressed is None and failed:
                return
            failed = suppressed is not None
            if suppressed:
                line["heldBack"] = suppressed
        if failed or self._seen % self.sample_every == 0:
            self._lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Write what was taken, in one write."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            self._out.write(b"".join(lines))
        except OSError:
            self.lost += len(lines)

    def close(self) -> None:
        """Write what is left and let go of the file."""
        self.flush()
        self._out.close()
