"""Removes old responses, temporary files and rejected requests from the mailbox, in slices: however many files somebody
has left, they must not stop the daemon.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Generator
from typing import Final

from postroom_common.protocol import REQUEST_SUFFIX, TEMP_SUFFIX

from ...config.settings import Settings
from ...platform.clock import Now
from ...platform.files import Files
from .rejected import RejectedRequests
from .request_files import RequestFiles
from .response_dirs import ResponseDirs

log = logging.getLogger(__name__)

#: Engine milliseconds between two sweeps.
SWEEP_EVERY_MS: Final = 10_000
#: A response directory that has been empty for so long is removed; it is made again when needed.
EMPTY_DIR_MS: Final = 24 * 3600 * 1000
#: Between two sweeps, wall and engine time may differ by this much before it counts as a step of the wall clock.
_STEP_MS: Final = 5_000
#: How long a slice may take, the one of each second and those between requests; and the time between the latter, so
#: that they take a tenth of it.
_SLICE_NS: Final = 20_000_000
_SHORT_SLICE_NS: Final = 1_000_000
_BETWEEN_NS: Final = 10_000_000
#: So long after the last request, nobody is kept waiting by a long slice.
_QUIET_NS: Final = 100_000_000


class Sweeper:
    """A sweep begins every ``SWEEP_EVERY_MS`` and goes on in slices."""

    def __init__(
        self,
        settings: Settings,
        files: Files,
        response_dirs: ResponseDirs,
        rejected: RejectedRequests,
        requests: RequestFiles,
    ) -> None:
        self.settings = settings
        self._files = files
        self._response_dirs = response_dirs
        self._rejected = rejected
        self._requests = requests
        self._swept: Now | None = None
        self._age_from = 0
        self._steps: Generator[None, None, None] | None = None
        self._went_on_ns = self._asked_ns = 0

    def tick(self, now: Now, files_wall: int) -> None:
        """Once a second: begin a sweep if it is time, or go on with one. ``files_wall`` is the time by which file
        systems stamp files (Unix ms). Raises ``OSError``."""
        if self._swept is None or now.engine - self._swept.engine >= SWEEP_EVERY_MS:
            self._begin(now, files_wall)
        quiet = time.monotonic_ns() - self._asked_ns > _QUIET_NS
        self._go_on(_SLICE_NS if quiet else _SHORT_SLICE_NS)

    def go_on(self) -> None:
        """Between requests: go on with a sweep, if one is under way."""
        self._asked_ns = time.monotonic_ns()
        if self._steps and self._asked_ns - self._went_on_ns >= _BETWEEN_NS:
            self._go_on(_SHORT_SLICE_NS)

    def _begin(self, now: Now, files_wall: int) -> None:
        settings = self.settings
        if self._swept and abs((now.wall - self._swept.wall) - (now.engine - self._swept.engine)) > _STEP_MS:
            # The wall clock stepped: file ages mean nothing until files from before are old by any measure.
            self._age_from = now.engine + max(settings.ipc_response_max_age_ms, settings.ipc_temp_max_age_ms)
            self.close()
        self._swept = now
        by_age = now.engine >= self._age_from
        if by_age and self._steps is None:
            self._steps = self._sweep(files_wall)
        self._rejected.sweep(files_wall, by_age)

    def _go_on(self, budget_ns: int) -> None:
        steps, until = self._steps, time.monotonic_ns() + budget_ns
        if steps is None:
            return
        try:
            for _ in steps:
                if time.monotonic_ns() >= until:
                    break
            else:
                self._steps = None
        except OSError as error:
            log.error("mailbox: %s", error)
            self._steps = None
        self._went_on_ns = time.monotonic_ns()

    def _sweep(self, files_wall: int) -> Generator[None, None, None]:
        """Remove old files, one at a step."""
        yield from self._response_dirs.sweep(files_wall, self.settings.ipc_response_max_age_ms, EMPTY_DIR_MS)
        directory, max_age_ms = self._requests.fd, self.settings.ipc_temp_max_age_ms
        for name in self._files.listdir(directory):
            if not name.endswith(REQUEST_SUFFIX + TEMP_SUFFIX):
                continue
            yield
            try:
                status = self._files.stat(name, dir_fd=directory, follow_symlinks=False)
                if files_wall - status.st_ctime_ns // 1_000_000 > max_age_ms:
                    self._files.unlink(name, dir_fd=directory)
            except OSError as error:  # RACE: its writer has renamed it, or the directory was replaced
                if error.errno not in (errno.ENOENT, errno.EBADF):
                    raise

    def close(self) -> None:
        """Close what a sweep has open."""
        if self._steps:
            self._steps.close()
        self._steps = None
