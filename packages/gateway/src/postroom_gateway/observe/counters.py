"""What the gateway counts, per door."""

from __future__ import annotations

from collections import Counter


class DoorCounters:
    """Counts of one door since the start."""

    def __init__(self) -> None:
        self.connections = 0
        self.refused_connections = 0
        #: Answers by status of HTTP; of other protocols, ``ok``, the kind of error, or ``error`` if the gateway failed.
        self.answers: Counter[int | str] = Counter()
        self.answer_seconds = 0.0
        self.refused_requests = 0
        self.slow_peers = 0
        self.failed_handshakes = 0

    def count(self, status: int | str, seconds: float) -> None:
        """Count an answer, and the time that it took."""
        self.answers[status] += 1
        self.answer_seconds += seconds
