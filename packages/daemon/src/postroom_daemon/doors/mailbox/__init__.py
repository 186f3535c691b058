"""The mailbox door: requests and answers as files. No other code touches the mailbox directory."""

from .directories import MailboxLost, mailbox_problem
from .door import Mailbox, MailboxReplaced
from .response_dirs import file_name

__all__ = ["Mailbox", "MailboxLost", "MailboxReplaced", "file_name", "mailbox_problem"]
