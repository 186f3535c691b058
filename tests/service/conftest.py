"""A service on a machine: one boot for each module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.installation import machine_with_product
from tests.service.machine import Machine, lacking
from tests.service.running_service import RunningService


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine with the product, started; nothing is set up. Where none can be started, that is said; in CI it is a
    failure."""
    why = lacking()
    if why:
        pytest.skip(f"no machine can be started here: {why}")
    with machine_with_product() as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def served(machine: Machine) -> RunningService:
    """The service set up by ``init --system``, and started, with users: clients anna and bert, the technician tess, and
    otto, who is in no group."""
    made = RunningService(machine)
    made.set_up()
    made.start()
    return made
