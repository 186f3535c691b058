"""What the checks of the repository share."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.packages import ROOT, Package
from release.packages import packages as find_packages

PACKAGES = find_packages()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument ``package`` runs once for each."""
    if "package" in metafunc.fixturenames:
        metafunc.parametrize("package", PACKAGES, ids=[package.name for package in PACKAGES])


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def packages() -> list[Package]:
    """All packages of the workspace."""
    return PACKAGES
