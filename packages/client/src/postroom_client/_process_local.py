"""Values that a forked child must not share with its parent."""

import os


class ProcessLocal(object):
    """A value that every process creates for itself on first use. Thread-safe."""

    def __init__(self, create):
        self._create = create
        self._values = {}

    def get(self):
        """Return the value of this process; create it on the first call."""
        pid = os.getpid()
        try:
            return self._values[pid]
        except KeyError:
            return self._values.setdefault(pid, self._create())  # atomic: all threads get the value of one of them

    def pop_inherited(self):
        """Remove and return the values of this process's ancestors. One caller gets them, whichever thread it is."""
        own_pid = os.getpid()
        values = [self._values.pop(pid, None) for pid in list(self._values) if pid != own_pid]
        return [value for value in values if value is not None]
