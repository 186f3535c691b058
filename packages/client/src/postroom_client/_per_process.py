"""What a forked child may not share with its parent."""

import os


class PerProcess(object):
    """A value that each process makes for itself, once. Any number of threads may ask at the same time."""

    def __init__(self, make):
        self._make = make
        self._values = {}

    def get(self):
        """This process's value; made now if it is asked for the first time."""
        pid = os.getpid()
        try:
            return self._values[pid]
        except KeyError:
            return self._values.setdefault(pid, self._make())  # atomic: all threads get what one of them made

    def take_from_parents(self):
        """The values of the processes that this one was forked from; each is given once, whichever thread asks."""
        mine = os.getpid()
        taken = [self._values.pop(pid, None) for pid in list(self._values) if pid != mine]
        return [value for value in taken if value is not None]
