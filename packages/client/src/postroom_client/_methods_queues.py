"""Queues: what is in them, pauses, policies."""

from ._methods import Methods


class QueueMethods(Methods):
    def status(self, queue, timeout=None):
        """Depths, policy and pauses of one queue."""
        return self._send("status", timeout, queue=queue)

    def list_queues(self, limit=None, after=None, timeout=None):
        """A page of the queues by name, each with its depths."""
        return self._send("list_queues", timeout, limit=limit, after=after)

    def pause(self, queue, operation=None, timeout=None):
        """Stop consuming from a queue (``operation`` "publish": publishing to it) until ``resume``."""
        return self._send("pause", timeout, queue=queue, operation=operation)

    def resume(self, queue, operation=None, timeout=None):
        """Undo ``pause``."""
        return self._send("resume", timeout, queue=queue, operation=operation)

    def set_policy(self, queue, policy, timeout=None):
        """Set keys of a queue's policy over the daemon's configuration; ``{}`` takes them all back."""
        return self._send("set_policy", timeout, queue=queue, policy=policy)

    def get_policy(self, queue, explain=None, timeout=None):
        """A queue's policy in effect, and what was set by ``set_policy``; ``explain``: where each key comes from."""
        return self._send("get_policy", timeout, queue=queue, explain=explain)
