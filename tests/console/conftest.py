"""The daemons of the tests through the wire, for the console; and a site for tests that only look."""

from __future__ import annotations

from tests.console.site import site
from tests.wire.conftest import backend, daemon, make_daemon

__all__ = ["backend", "daemon", "make_daemon", "site"]
