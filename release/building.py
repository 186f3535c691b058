"""Builds wheels and source archives, and checks their contents."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

from packaging.metadata import InvalidMetadata, Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from .errors import ReleaseError
from .packages import Package

#: Files that no wheel may contain.
UNWANTED = (".pyc", ".orig", ".rej", "~")


def build(
    package: Package, destination: Path, kind: str, dated_s: int | None = None, is_compiled: bool = False
) -> Path:
    """Build a ``wheel`` or an ``sdist`` into a directory; the same files and date give the same bytes.

    ``is_compiled`` is for the processor and the Python of this process, if the package has modules to compile. Raises
    ``ReleaseError`` with what the build said.
    """
    return _build_in(package.directory, destination, kind, dated_s, is_compiled)


def _build_in(directory: Path, destination: Path, kind: str, dated_s: int | None, is_compiled: bool = False) -> Path:
    destination.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HATCH_BUILD_")}
    environment |= {} if dated_s is None else {"SOURCE_DATE_EPOCH": str(dated_s)}
    environment |= {"HATCH_BUILD_HOOKS_ENABLE": "1"} if is_compiled else {}
    with tempfile.TemporaryDirectory(dir=destination) as made:
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", made]
        run = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
        if run.returncode:
            raise ReleaseError(f"{directory.name} cannot be built: {run.stderr.strip() or run.stdout.strip()}")
        (path,) = Path(made).iterdir()
        return path.replace(destination / path.name)


def check_wheel(wheel: Path, package: Package) -> None:
    """Raises ``ReleaseError`` if a wheel does not match its package, or if a package index would refuse it."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    if (name, version) != (package.distribution, Version(package.version)):
        raise ReleaseError(f"{wheel.name} is not {package.distribution} {package.version}")
    with zipfile.ZipFile(wheel) as archive:
        info = f"{package.module}-{package.version}.dist-info"
        members = {one: archive.read(one) for one in archive.namelist()}
    for member in members:
        if member.split("/")[0] not in (package.module, info) or member.endswith(UNWANTED):
            raise ReleaseError(f"{wheel.name} contains {member}, which is not part of the package")
    missing = {
        path.relative_to(package.source.parent).as_posix() for path in package.source.rglob("*") if path.is_file()
    }
    missing = {one for one in missing - set(members) if not one.endswith(UNWANTED)}
    if missing:
        raise ReleaseError(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    _check_sums(wheel.name, members, f"{info}/RECORD")
    licence = members.get(f"{info}/licenses/LICENSE")
    if licence != (package.directory / "LICENSE").read_bytes():
        raise ReleaseError(f"{wheel.name} lacks the licence")
    _check_metadata(members[f"{info}/METADATA"], package, wheel.name)


def _check_sums(name: str, members: dict[str, bytes], record: str) -> None:
    lines = [line.rsplit(",", 2) for line in members[record].decode().splitlines()]
    if sorted(path for path, _, _ in lines) != sorted(members):
        raise ReleaseError(f"{name}: RECORD does not list the files of the wheel")
    for path, digest, _ in lines:
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(members[path]).digest()).decode().rstrip("=")
        if path != record and digest != f"sha256={sha256}":
            raise ReleaseError(f"{name}: RECORD has another checksum of {path}")


def _check_metadata(data: bytes, package: Package, name: str) -> None:
    try:
        metadata = Metadata.from_email(data, validate=True)
    except (InvalidMetadata, ExceptionGroup) as error:
        faults = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        raise ReleaseError(f"{name}: {'; '.join(str(fault) for fault in faults)}") from None
    if metadata.name != package.distribution or str(metadata.version) != package.version:
        raise ReleaseError(f"{name}: the metadata are those of {metadata.name} {metadata.version}")
    wanted = {"summary": metadata.summary, "requires-python": metadata.requires_python}
    wanted |= {"license": metadata.license_expression, "readme": metadata.description}
    absent = [key for key, value in wanted.items() if not value]
    if absent:
        raise ReleaseError(f"{name}: the metadata lack {', '.join(absent)}")
    if metadata.description_content_type != "text/markdown":
        raise ReleaseError(f"{name}: the readme is {metadata.description_content_type}, not text/markdown")
    if BytesParser().parsebytes(data).defects:
        raise ReleaseError(f"{name}: the metadata are malformed")


def check_sdist(sdist: Path, package: Package, wheel: Path, workspace: Path, dated_s: int | None = None) -> None:
    """Raises ``ReleaseError`` if a wheel built from a source archive differs from the wheel of the commit."""
    name, version = parse_sdist_filename(sdist.name)
    if (name, version) != (package.distribution, Version(package.version)):
        raise ReleaseError(f"{sdist.name} is not {package.distribution} {package.version}")
    with tarfile.open(sdist) as archive:
        archive.extractall(workspace, filter="data")
    (unpacked,) = workspace.iterdir()
    again = _build_in(unpacked, workspace / "wheel", "wheel", dated_s)
    if again.read_bytes() != wheel.read_bytes():
        raise ReleaseError(f"{sdist.name} builds another wheel than the commit")
