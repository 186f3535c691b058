"""What a group can fail with, beside what the journal and the store raise."""

from __future__ import annotations

from typing import Final

from postroom_common.errors import PostroomError

from ..journal.journal import JournalRefused, JournalUnknown
from ..stores.errors import StoreDamaged


class MustRecover(PostroomError):
    """What is on disk and what is in memory may differ: nobody is answered, the daemon recovers from the journal."""


class NotConfirmed(MustRecover):
    """The others do not have a group, or it is unknown: the next opening follows, and learns what they have."""


class NoSpace(JournalRefused):
    """The disk lacks space for a group, and the whole reserve would not be enough."""


#: After these the broker must not be used again.
FATAL: Final = (MustRecover, JournalUnknown, StoreDamaged)
