"""The mailbox directory: the only code that touches it."""

from .directories import MailboxLost, mailbox_hindrance
from .door import Mailbox, MailboxReplaced

__all__ = ["Mailbox", "MailboxLost", "MailboxReplaced", "mailbox_hindrance"]
