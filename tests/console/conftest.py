"""The daemons of the wire tests, and a site for tests that change nothing."""

from __future__ import annotations

from tests.console.site import site
from tests.console.watching import hasty, source
from tests.wire.conftest import backend, daemon, make_daemon

__all__ = ["backend", "daemon", "hasty", "make_daemon", "site", "source"]
