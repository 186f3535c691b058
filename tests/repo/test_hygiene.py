"""The repository speaks of the product alone, and its small promises agree with each other."""

from __future__ import annotations

import os
import re
import tomllib

import pytest

from tests.conftest import LONG

# Written in pieces, so that this file does not find itself.
FORBIDDEN = [
    re.compile(pattern)
    for pattern in (
        r"/wo" + "rk/",
        r"/ro" + r"ot/\.",
        r"/home/[a-z]",
        r"\.pyenv/vers" + r"ions/\d",
        "py" + r"pi\.(org|io)",
        "python" + "hosted",
        "--(extra-)?index" + "-url",
        "/opt/" + "(wheels|pypi)",
    )
]
LOCK_FILES = {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "requirements.lock", "package-lock.json"}
NOT_OURS = {
    ".git",
    ".venv",
    "run",
    "dist",
    "build",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "snapshot_report.html",
}


def files(root):
    for directory, names, found in os.walk(root):
        names[:] = [name for name in names if name not in NOT_OURS and not name.endswith(".egg-info")]
        for name in set(found) - NOT_OURS:  # in a worktree, .git is a file
            yield root.__class__(directory) / name


def test_no_file_names_a_machine_s_path_or_a_registry(root):
    for path in files(root):
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern in FORBIDDEN:
                assert not pattern.search(line), f"{path}:{number}: {line.strip()[:100]}"


def test_each_file_of_tests_that_is_to_begin_early_exists(root):
    assert [name for name in LONG if not (root / name).is_file()] == []


def test_there_is_no_lock_file(root):
    assert not [path for path in files(root) if path.name in LOCK_FILES and path.name != "uv.lock"]
    assert "uv.lock" in (root / ".gitignore").read_text().split()


def test_constraints_have_names_and_versions_only(root):
    lines = (root / "constraints.txt").read_text().splitlines()
    constraints = [line for line in lines if not line.startswith("#")]
    assert constraints
    for line in constraints:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line), line


def test_every_installed_package_is_constrained(root, package):
    def plain(requirement):
        return re.split(r"[^A-Za-z0-9_.-]", requirement)[0].replace("_", "-").lower()

    constrained = {plain(line) for line in (root / "constraints.txt").read_text().splitlines()}
    with (root / "pyproject.toml").open("rb") as file:
        groups = tomllib.load(file)["dependency-groups"]
    tools = [requirement for group in groups.values() for requirement in group]
    for requirement in [*tools, *package.project["project"]["dependencies"]]:
        assert plain(requirement).startswith("postroom-") or plain(requirement) in constrained, requirement


def test_the_root_lists_every_package(root, package):
    with (root / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    assert package.distribution in project["project"]["dependencies"]
    assert package.distribution in project["tool"]["uv"]["sources"]


def test_a_package_carries_the_licence(root, package):
    assert (package.directory / "LICENSE").read_text() == (root / "LICENSE").read_text()


def test_a_changelog_begins_with_the_version_of_the_package(package):
    headings = re.findall(r"^## (\S+)", (package.directory / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == package.version


def test_a_package_is_described(package):
    readme = (package.directory / "README.md").read_text()
    assert readme.startswith(f"# {package.distribution}\n")
    assert package.project["project"]["description"]


def test_a_sibling_is_required_by_a_range(package):
    for requirement in package.project["project"]["dependencies"]:
        if requirement.startswith("postroom-"):
            assert re.fullmatch(r"postroom-[a-z]+>=\d+\.\d+,<\d+", requirement), requirement


SCRIPTS = "setup start test lint find-python vendor-client release build-deb make-manual"


@pytest.mark.parametrize("name", SCRIPTS.split())
def test_a_script_can_be_run_and_says_what_it_does(root, name):
    path = root / "scripts" / name
    assert os.access(path, os.X_OK)
    first, second = path.read_text().splitlines()[:2]
    assert first == "#!/usr/bin/env bash"
    assert second.startswith("# ")
    assert "set -euo pipefail" in path.read_text()
