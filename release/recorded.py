"""Releases as ``releases.toml`` records them, and the files of their commits."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from .errors import ReleaseError
from .packages import ROOT

FILE = "releases.toml"


@dataclass(frozen=True)
class Release:
    """A version of a package, and the commit that it is built from."""

    package: str
    version: str
    commit: str


def recorded(root: Path = ROOT) -> list[Release]:
    """All releases, in the order of recording. Raises ``ReleaseError`` if the file cannot be read."""
    path = root / FILE
    if not path.exists():
        return []
    try:
        entries = tomllib.loads(path.read_text("utf-8")).get("release", [])
        return [Release(**entry) for entry in entries]
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ReleaseError(f"{FILE} cannot be read: {error}") from None


def last_of(distribution: str, root: Path = ROOT) -> Release | None:
    """The newest release of a package by its version, or None."""
    of_it = [one for one in recorded(root) if one.package == distribution]
    return max(of_it, key=lambda one: Version(one.version), default=None)


def find_release(distribution: str, version: str, root: Path = ROOT) -> Release:
    """A recorded release; ``last`` is the newest. Raises ``ReleaseError`` if none matches."""
    of_it = [one for one in recorded(root) if one.package == distribution]
    found = last_of(distribution, root) if version == "last" else None
    found = found or next((one for one in of_it if one.version == version), None)
    if found is None:
        known = ", ".join(one.version for one in of_it) or "none"
        raise ReleaseError(f"{distribution} {version} is not recorded in {FILE}; recorded are: {known}")
    return found


def record(release: Release, root: Path = ROOT) -> None:
    """Append a release to the file. The caller commits the change."""
    path = root / FILE
    before = path.read_text("utf-8") if path.exists() else ""
    lines = [f'{name} = "{value}"' for name, value in vars(release).items()]
    path.write_text(before + "\n[[release]]\n" + "\n".join(lines) + "\n", "utf-8")


def git(root: Path, *arguments: str) -> str:
    """Run git in a checkout; its output. Raises ``ReleaseError`` with the error of git."""
    run = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if run.returncode:
        raise ReleaseError(f"git {arguments[0]}: {run.stderr.strip() or 'failed'}")
    return run.stdout.strip()


def check_commit(commit: str, root: Path = ROOT) -> None:
    """Raises ``ReleaseError`` if the clone lacks this commit; the text says how to get it."""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ReleaseError(f"{commit} is not a full commit id")
    try:
        shallow = git(root, "rev-parse", "--is-shallow-repository")
    except ReleaseError as error:
        raise ReleaseError(f"{root} is not a clone, and releases are built from their commits ({error})") from None
    run = subprocess.run(["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
    if run.returncode:
        how = "it is shallow: git fetch --unshallow" if shallow == "true" else "git fetch, from where it was released"
        raise ReleaseError(f"this clone lacks commit {commit} ({how})")


def unpack_commit(commit: str, destination: Path, root: Path = ROOT) -> Path:
    """The files of a commit, as a clone would have them. Raises ``ReleaseError``."""
    check_commit(commit, root)
    destination.mkdir(parents=True, exist_ok=True)
    with (
        subprocess.Popen(["git", "-C", str(root), "archive", commit], stdout=subprocess.PIPE) as packing,
        tarfile.open(fileobj=packing.stdout, mode="r|") as archive,
    ):
        archive.extractall(destination, filter="data")
    if packing.returncode:
        raise ReleaseError(f"git archive ended with {packing.returncode}")
    return destination


def commit_time(commit: str, root: Path = ROOT) -> int:
    """The time of a commit (Unix seconds), used as the date of everything built from it."""
    return int(git(root, "show", "--no-patch", "--format=%ct", commit))
