"""The daemons of the tests through the wire, for the console; and a site for tests that only look."""

from __future__ import annotations

from tests.console.site import site
from tests.console.watching import hasty, source
from tests.wire.conftest import backend, daemon, make_daemon

__all__ = ["backend", "daemon", "hasty", "make_daemon", "site", "source"]
