"""The packages of the workspace, read from a checkout."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ReleaseError

#: The checkout that contains this file.
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """One package of the workspace."""

    directory: Path

    @property
    def name(self) -> str:
        """The short name, such as ``daemon``."""
        return self.directory.name

    @property
    def distribution(self) -> str:
        """The name for pip."""
        return f"postroom-{self.name}"

    @property
    def module(self) -> str:
        """The name for ``import``."""
        return f"postroom_{self.name}"

    @property
    def source(self) -> Path:
        """The directory of its modules."""
        return self.directory / "src" / self.module

    @property
    def project(self) -> dict[str, Any]:
        """Its ``pyproject.toml``."""
        with (self.directory / "pyproject.toml").open("rb") as file:
            return tomllib.load(file)

    @property
    def version(self) -> str:
        """The version of its wheel: from ``pyproject.toml``, or for the client from its source."""
        static = self.project["project"].get("version")
        if static:
            return str(static)
        where: Path = self.directory / self.project["tool"]["hatch"]["version"]["path"]
        (line,) = (line for line in where.read_text().splitlines() if line.startswith("__version__"))
        return line.partition("=")[2].strip().strip("\"'")

    @property
    def scripts(self) -> list[str]:
        """The commands that it installs."""
        return list(self.project["project"].get("scripts", {}))

    @property
    def siblings(self) -> list[str]:
        """Short names of the packages of this workspace that it requires directly."""
        found = (re.match(r"postroom-([a-z]+)", one) for one in self.project["project"]["dependencies"])
        return [match[1] for match in found if match]

    @property
    def outside(self) -> set[str]:
        """Its requirements from outside this workspace."""
        return {one for one in self.project["project"]["dependencies"] if not one.startswith("postroom-")}

    @property
    def changes(self) -> dict[str, list[str]]:
        """The changelog: lines by version, the newest version first."""
        parts = re.split(r"^## (\S+).*$", (self.directory / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
        sections = zip(parts[::2], parts[1::2], strict=True)
        return {version: re.findall(r"^- .+", text, re.MULTILINE) for version, text in sections}


def packages(root: Path = ROOT) -> list[Package]:
    """All packages of a checkout, by name."""
    return [Package(file.parent) for file in sorted(root.glob("packages/*/pyproject.toml"))]


def find_package(name: str, root: Path = ROOT) -> Package:
    """The package with this short or full name. Raises ``ReleaseError`` if none exists."""
    known = packages(root)
    for package in known:
        if name in (package.name, package.distribution):
            return package
    raise ReleaseError(f"unknown package {name}; the packages are {', '.join(one.name for one in known)}")


def with_siblings(package: Package) -> list[Package]:
    """A package and all packages of this workspace that it requires."""
    found = {package.name: package}
    for name in package.siblings:
        found |= {one.name: one for one in with_siblings(Package(package.directory.parent / name))}
    return list(found.values())
