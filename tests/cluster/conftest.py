"""NATS servers for all tests of the cluster, and clusters of hand-driven daemons on them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.servers import Servers


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three servers, which all tests share: each has a stream of its own."""
    made = Servers(tmp_path_factory.mktemp("nats"))
    try:
        yield made
    finally:
        made.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """nats-py does not close the connection of an attempt to connect again that fails."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What is left of a test's connections goes before other tests begin."""
    yield
    gc.collect()
