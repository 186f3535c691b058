"""The daemons of the tests through the wire, for the console."""

from __future__ import annotations

from tests.wire.conftest import backend, daemon, make_daemon

__all__ = ["backend", "daemon", "make_daemon"]
