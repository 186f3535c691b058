"""Eight thousand requests that are nearly right; ``scripts/campaign mutations`` is the long form."""

from __future__ import annotations

import pytest

from tests.wire.conftest import MakeDaemon
from tests.wire.mutations import send_mutated


@pytest.mark.slow
def test_the_daemon_survives_every_mutated_request_and_removes_each_file(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("--traffic-enabled", "false", "--log-level", "error").start()
    said = send_mutated(daemon, 8000, number=1)
    print(dict(said))
    assert said["sent"] >= 8000
    assert said["executed"] > 400
    assert len(said) > 8, "not enough different errors: too few of them get anywhere"
