"""Makes the two files that spark-submit takes to a cluster: an archive with the code, and the program to start.

The archive is a .zip because Spark does not import wheels on executors. It contains only Python code: the pipeline, the
package it shares with the rest of Postroom, and click for the command line. Executors need no compiled packages.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .errors import EnvironmentProblem

ARCHIVE: Final = "postroom_pipeline.zip"
ENTRY: Final = "run.py"
#: The distributions in the archive, and the package of each.
_CONTENT: Final = {"postroom-pipeline": "postroom_pipeline", "postroom-common": "postroom_common", "click": "click"}
_ENTRY_TEXT: Final = '''"""What spark-submit starts: spark-submit --py-files postroom_pipeline.zip run.py COMMAND ..."""

from postroom_pipeline.cli import main

main(prog_name="postroom-pipeline")
'''
#: The time stamp of every member, so that equal code gives equal bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


def write_package(directory: Path) -> tuple[Path, Path]:
    """Write the archive and the program, replacing existing ones; their paths.

    :raises EnvironmentProblem: the directory cannot be written, or a package is not installed.
    """
    archive, entry = directory / ARCHIVE, directory / ENTRY
    hidden = directory / f".{ARCHIVE}.part"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(hidden, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in sorted(_members()):
                member = zipfile.ZipInfo(name, _TIME)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                file.writestr(member, content)
        hidden.replace(archive)
        entry.write_text(_ENTRY_TEXT, encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"{error.filename or directory}: {error.strerror}") from None
    return archive, entry


def _members() -> Iterator[tuple[str, bytes]]:
    """The name in the archive and the content of each file."""
    for name, package in _CONTENT.items():
        home = _home(package)
        for path in home.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{package}/{path.relative_to(home).as_posix()}", path.read_bytes()
        # Makes importlib.metadata.version work in the archive too.
        metadata = _metadata(name)
        yield f"{package}-{metadata[0]}.dist-info/METADATA", metadata[1].encode()


def _home(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem(f"{package} is not installed")
    home = Path(spec.submodule_search_locations[0])
    if not home.is_dir():
        raise EnvironmentProblem(f"{package} is itself in an archive ({home}): run this command where it is installed")
    return home


def _metadata(name: str) -> tuple[str, str]:
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        raise EnvironmentProblem(f"{name} is not installed") from None
    return installed.version, installed.read_text("METADATA") or ""
