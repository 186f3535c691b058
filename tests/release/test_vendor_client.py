"""scripts/vendor-client: a copy that is whole, that says what it is, that was imported, and that is not lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from postroom_client import __version__
from tests.client.conftest import PACKAGE, REQUIRED, ROOT, run
from tests.client.conftest import available_interpreters as interpreters


def vendor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "vendor-client", *arguments], capture_output=True, text=True)


def copied(destination: Path) -> Path:
    done = vendor(destination)
    assert done.returncode == 0, done.stderr
    return destination / "postroom_client"


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def files(directory: Path) -> dict[str, bytes]:
    """The files of a folder and of those below it, but not what interpreters leave there."""
    paths = [path for path in directory.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


#: The oldest, where this machine has them, and the one that runs this.
VERSIONS = [*(one for one in REQUIRED if one in interpreters()), "{}.{}".format(*sys.version_info)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_is_imported_by_the_interpreter_that_is_named(version: str, tmp_path: Path) -> None:
    done = vendor(tmp_path, "--python", version)
    assert done.returncode == 0, done.stderr
    assert f"imported by Python {version}." in done.stderr
    reported = run(interpreters().get(version, sys.executable), tmp_path, "-S", "-m", "postroom_client", "--version")
    assert reported.stdout.startswith("postroom "), reported.stdout


def test_a_copy_is_the_source_with_licence_and_stamp_and_nothing_else(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    assert names(tmp_path) == {"postroom_client"}
    licence = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    found = files(copy)
    stamp = found.pop("VENDORED").decode()
    assert found == files(PACKAGE) | licence
    assert stamp.startswith(f"postroom-client {__version__}, ")
    assert "\ncommit " in stamp


def test_a_second_copy_replaces_the_first_even_if_it_was_run(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "client.cpython-311.pyc").write_bytes(b"compiled")
    copied(tmp_path)
    assert not (copy / "__pycache__").exists()


def test_an_outdated_copy_is_replaced_completely(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    (copy / "gone.py").write_text("# a module of an earlier release\n")
    sums = subprocess.run(["sha256sum", "./gone.py"], cwd=copy, capture_output=True, text=True, check=True).stdout
    stamp = copy / "VENDORED"
    head, body = stamp.read_text().split("\n\n")
    lines = sorted([*body.splitlines(), sums.strip()], key=lambda line: line.split()[1])
    stamp.write_text(head + "\n\n" + "\n".join(lines) + "\n")
    copied(tmp_path)
    assert not (copy / "gone.py").exists()


def change(copy: Path) -> str:
    with (copy / "client.py").open("a") as file:
        file.write("# a local remedy\n")
    return "client.py"


def add(copy: Path) -> str:
    (copy / "patch.py").touch()
    return "patch.py"


def remove(copy: Path) -> str:
    (copy / "cli" / "__init__.pyi").unlink()
    return "cli/__init__.pyi"


def unstamp(copy: Path) -> str:
    (copy / "VENDORED").unlink()
    return "not made by vendor-client"


@pytest.mark.parametrize("hand", [change, add, remove, unstamp])
def test_a_copy_that_somebody_has_changed_is_replaced_by_force_alone(hand, tmp_path: Path) -> None:
    copy = copied(tmp_path)
    fresh = set(files(copy))
    reported = hand(copy)
    before = files(copy)
    refused = vendor(tmp_path)
    assert refused.returncode == 1
    assert reported in refused.stderr
    assert "--force" in refused.stderr
    assert files(copy) == before
    assert vendor(tmp_path, "--force").returncode == 0
    assert set(files(copy)) == fresh
    assert "a local remedy" not in (copy / "client.py").read_text()


def test_a_client_that_cannot_be_imported_does_not_replace_one_that_can(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    before = (copy / "VENDORED").read_bytes()
    broken = tmp_path / "python9"
    broken.write_text("#!/bin/sh\necho 'ImportError: no such module' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = vendor(tmp_path, "--python", broken)
    assert done.returncode == 1
    assert "ImportError: no such module" in done.stderr
    assert (copy / "VENDORED").read_bytes() == before
    assert names(tmp_path) == {"postroom_client", "python9"}


@pytest.mark.parametrize(
    ("arguments", "status", "reported"),
    [
        ([], 2, "name the directory in which to put"),
        (["{tmp}", "{tmp}"], 2, "one directory"),
        (["{tmp}", "--pyton"], 2, "unknown option --pyton"),
        (["{tmp}", "--python"], 2, "needs a version or a path"),
        (["{tmp}", "--python", "9.9"], 1, "there is no Python 9.9"),
        (["{tmp}/none"], 1, "is not a directory; create it first"),
        ([str(PACKAGE.parent)], 2, "is where the client is kept"),
    ],
)
def test_an_impossible_request_is_reported_in_one_line_and_leaves_nothing(
    arguments, status, reported, tmp_path: Path
) -> None:
    done = vendor(*(one.format(tmp=tmp_path) for one in arguments))
    assert (done.returncode, done.stdout) == (status, "")
    assert reported in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert names(tmp_path) == set()


def test_help_is_not_an_error() -> None:
    done = vendor("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "DEST" in done.stdout and "#" not in done.stdout


def test_a_link_in_its_place_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "postroom_client").symlink_to("elsewhere")
    done = vendor(tmp_path, "--force")
    assert done.returncode == 1
    assert (tmp_path / "postroom_client").is_symlink()
    assert names(tmp_path / "elsewhere") == set()
