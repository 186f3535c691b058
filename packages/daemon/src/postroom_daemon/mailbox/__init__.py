"""The mailbox directory: the only code that touches it."""

from .directories import MailboxLost
from .mailbox import Mailbox, MailboxReplaced

__all__ = ["Mailbox", "MailboxLost", "MailboxReplaced"]
