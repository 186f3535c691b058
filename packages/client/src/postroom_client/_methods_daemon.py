"""The daemon itself: how it is, and its whole state."""

from ._methods import Methods


class DaemonMethods(Methods):
    def health(self, timeout=None):
        """Whether the daemon's journal, store and disk work."""
        return self._send("health", timeout)

    def metrics(self, timeout=None, format=None):
        """The daemon's counters and rates; with ``format="prometheus"`` all its figures as ``text`` in the form that
        Prometheus reads."""
        return self._send("metrics", timeout, format=format)

    def read_state(self, part=None, after=None, limit=None, timeout=None):
        """A page of all that the daemon knows; for the user that it runs as, and for root."""
        return self._send("read_state", timeout, part=part, after=after, limit=limit)

    def import_state(self, engine_ms, wall_ms, queues=None, messages=None, facts=None, timeout=None):
        """Take over queues, messages and facts as another daemon's ``read_state`` gave them; for the same users."""
        return self._send(
            "import_state",
            timeout,
            engine_ms=engine_ms,
            wall_ms=wall_ms,
            queues=queues,
            messages=messages,
            facts=facts,
        )
