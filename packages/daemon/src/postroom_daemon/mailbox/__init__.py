"""The mailbox directory: the only code that touches it."""

from .mailbox import Mailbox

__all__ = ["Mailbox"]
