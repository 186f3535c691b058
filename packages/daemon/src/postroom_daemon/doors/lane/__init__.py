"""The lane: the commands of the mailbox over a local socket. See ``docs/lane.md``."""

from .door import Lane
from .senders import Senders

__all__ = ["Lane", "Senders"]
