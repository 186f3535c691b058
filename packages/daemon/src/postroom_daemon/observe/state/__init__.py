"""The state of a root at one event: read by pages from a stopped root, or from a daemon that works on; put into a
store; written to a file and read back. Backup, restore, migration, export and verification stand on it."""

from .capture import bodies_in, capture
from .file import STATE_BEGINS, Totals, read_state, write_state
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
