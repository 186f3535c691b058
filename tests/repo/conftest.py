"""What the checks of the repository share."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Package:
    """One package of the workspace."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def distribution(self) -> str:
        return f"postroom-{self.name}"

    @property
    def module(self) -> str:
        return f"postroom_{self.name}"

    @property
    def source(self) -> Path:
        return self.directory / "src" / self.module

    @property
    def project(self) -> dict[str, Any]:
        with (self.directory / "pyproject.toml").open("rb") as file:
            return tomllib.load(file)

    @property
    def version(self) -> str:
        """The version that its wheel gets: static, or, for the client, the source's own."""
        static = self.project["project"].get("version")
        if static:
            return str(static)
        where: Path = self.directory / self.project["tool"]["hatch"]["version"]["path"]
        (line,) = (line for line in where.read_text().splitlines() if line.startswith("__version__"))
        return line.partition("=")[2].strip().strip("\"'")


PACKAGES = [Package(file.parent) for file in sorted(ROOT.glob("packages/*/pyproject.toml"))]


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
