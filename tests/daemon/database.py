"""The database behind an open SQLite store, for tests that damage it or watch its statements."""

from __future__ import annotations

import sqlite3

from postroom_daemon.stores.sqlite.store import SqliteStore


def connection(store: SqliteStore) -> sqlite3.Connection:
    """The only connection that can be open: the store locks its database against all others."""
    return store.db.connection
