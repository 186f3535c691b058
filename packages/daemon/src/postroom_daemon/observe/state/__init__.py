"""The state of a root as of one event: captured page by page from a stopped root or a running daemon, loaded into a
store, written to a file and read back. One form for backup, state files, restore, migration, export and verification.
"""

from .capture import capture
from .file import STATE_BEGINS, Totals, read_state, write_state
from .following import bodies_in
from .loading import can_go_on, load
from .model import Ask, Fact, Head, State, StateError, message_json, of_store, steady

__all__ = [
    "STATE_BEGINS",
    "Ask",
    "Fact",
    "Head",
    "State",
    "StateError",
    "Totals",
    "bodies_in",
    "can_go_on",
    "capture",
    "load",
    "message_json",
    "of_store",
    "read_state",
    "steady",
    "write_state",
]
