"""Records in files of the daemon's own: rotated, bounded, one JSON object a line."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from ..files import Files
from ..rotated import RotatedLines
from .lines import json_line

#: What the names of the files begin with.
PREFIX: Final = "postroomd-"


class LogFiles(logging.Handler):
    """Files ``postroomd-<number, 20 digits>.jsonl`` in ``root``. A disk that takes no record loses it: ``lost`` counts
    them."""

    def __init__(self, root: Path, file_bytes: int, keep_files: int) -> None:
        super().__init__()
        self.lost = 0
        self._out = RotatedLines(root, Files(), file_bytes, keep_files, PREFIX, goes_on=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._out.write(json_line(record) + b"\n")
        except OSError:
            self.lost += 1

    def close(self) -> None:
        self._out.close()
        super().close()
