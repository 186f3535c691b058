# -*- coding: utf-8 -*-
"""Failures told sparingly. Runs unchanged on Python 2.7 and 3.6 and newer."""

from __future__ import print_function

import sys


class Trouble(object):
    """Tells the first failure, then the 10th, 20th, 40th and so on, until something has worked again.

    A daemon may be away for days: its absence must not fill the disk with a log.
    """

    def __init__(self, name):
        self._name = name
        self._failures = 0
        self._next_told = 1

    def note(self, text):
        """One more failure."""
        self._failures += 1
        if self._failures < self._next_told:
            return
        if self._failures > 1:
            text = "%s (failure %d in a row)" % (text, self._failures)
        self._tell(text)
        self._next_told = max(10, 2 * self._failures)

    def over(self):
        """Something has worked."""
        if self._failures:
            self._tell("works again, after %d failure%s" % (self._failures, "s" if self._failures > 1 else ""))
        self._failures, self._next_told = 0, 1

    def _tell(self, text):
        print("%s: %s" % (self._name, text), file=sys.stderr)
