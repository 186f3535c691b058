"""The mailbox door: requests and answers as files. No other code touches the mailbox directory."""

from .directories import MailboxLost, mailbox_problem
from .door import Mailbox, MailboxReplaced

__all__ = ["Mailbox", "MailboxLost", "MailboxReplaced", "mailbox_problem"]
