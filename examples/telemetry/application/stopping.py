# -*- coding: utf-8 -*-
"""A clean stop by SIGTERM or SIGINT. Runs unchanged on Python 2.7 and 3.6 and newer."""

import errno
import os
import select
import signal


class Stop(object):
    """Notes the signal and lets the work at hand be finished: ask ``requested``, pause with ``wait``."""

    def __init__(self):
        self.requested = False
        self._readable, self._writable = os.pipe()
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def _note(self, number, frame):
        if not self.requested:
            self.requested = True
            os.write(self._writable, b".")

    def wait(self, seconds):
        """Sleep for that long, or until a stop is requested; returns ``requested``."""
        if not self.requested:
            try:
                select.select([self._readable], [], [], max(0, seconds))
            except (OSError, select.error) as error:  # Python 2.7 is interrupted by the signal itself
                if error.args[0] != errno.EINTR:
                    raise
        return self.requested
