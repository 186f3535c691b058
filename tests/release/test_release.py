"""scripts/release, in clones of this repository: a valid release is built and recorded, anything else is reported."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from release.building import build, check_wheel
from release.command import check_fit, main
from release.errors import ReleaseError
from release.packages import ROOT, Package, find_package, packages
from release.recorded import Release, check_commit, find_release, git, last_of, record, recorded, unpack_commit

AUTHOR = {"GIT_AUTHOR_NAME": "A. Releaser", "GIT_AUTHOR_EMAIL": "releaser@example.org"}
COMMITTER = {"GIT_COMMITTER_NAME": "A. Releaser", "GIT_COMMITTER_EMAIL": "releaser@example.org"}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of what is committed here, in which one may commit."""
    for name, value in (AUTHOR | COMMITTER).items():
        monkeypatch.setenv(name, value)
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tmp_path / "clone"], check=True)
    return tmp_path / "clone"


def change(clone: Path, name: str, old: str, new: str) -> None:
    """Replace a text in a file of the clone, and commit."""
    path = clone / name
    before = path.read_text("utf-8")
    assert old in before
    path.write_text(before.replace(old, new, 1), "utf-8")
    git(clone, "commit", "--quiet", "--message", "A change", "--", name)


def raise_version(clone: Path) -> Package:
    """The client of the clone with a version of its own, and a line about it."""
    client = find_package("client", clone)
    change(clone, "packages/client/src/postroom_client/__init__.py", f'"{client.version}"', '"9.0.1"')
    change(clone, "packages/client/CHANGELOG.md", "\n## ", "\n## 9.0.1\n\n- Something that a user notices.\n\n## ")
    return client


def test_a_release_is_built_checked_and_recorded_and_built_again_the_same(clone: Path, tmp_path: Path, capsys) -> None:
    raise_version(clone)
    assert main(["client", "--record", "--out", str(tmp_path / "first")], clone) == 0
    wheel = "postroom_client-9.0.1-py2.py3-none-any.whl"
    built = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert set(built) == {wheel, "postroom_client-9.0.1.tar.gz"}
    assert all(name in capsys.readouterr().out.replace("\n", " ") for name in [wheel])
    commit = git(clone, "rev-parse", "HEAD")
    assert last_of("postroom-client", clone) == Release("postroom-client", "9.0.1", commit)
    git(clone, "commit", "--quiet", "--message", "Release", "--", "releases.toml")
    change(clone, "packages/client/README.md", "# ", "# The ")
    assert main(["client", "--version", "last", "--out", str(tmp_path / "second")], clone) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()} == built
    assert main(["--list"], clone) == 0
    assert f"postroom-client 9.0.1 {commit}" in capsys.readouterr().out


def test_a_package_with_uncommitted_changes_is_no_release(clone: Path) -> None:
    client = raise_version(clone)
    (clone / "packages/client/src/postroom_client/left_over.py").touch()
    with pytest.raises(ReleaseError, match=r"uncommitted changes:\n.*left_over\.py"):
        check_fit(client, clone)


def test_a_version_is_released_once(clone: Path, tmp_path: Path, capsys) -> None:
    client = raise_version(clone)
    record(Release(client.distribution, "9.0.1", "0" * 40), clone)
    git(clone, "commit", "--quiet", "--message", "Release", "--", "releases.toml")
    assert main(["client", "--out", str(tmp_path / "out")], clone) == 1
    assert "9.0.1 is released: the version must be later than that, not 9.0.1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("## 9.0.1", "## 9.0.2", "must begin with ## 9.0.1"),
        ("- Something that a user notices.\n", "", "has no lines for 9.0.1"),
    ],
)
def test_a_release_has_its_lines_in_the_changelog(old: str, new: str, reported: str, clone: Path) -> None:
    client = raise_version(clone)
    change(clone, "packages/client/CHANGELOG.md", old, new)
    with pytest.raises(ReleaseError, match=reported):
        check_fit(client, clone)


def test_wrong_usage_is_reported(clone: Path, capsys) -> None:
    assert main(["klient"], clone) == 1
    assert (
        "unknown package klient; the packages are client, cluster, common, console, daemon, gateway, pipeline"
        in capsys.readouterr().err
    )
    assert main(["client", "--version", "77"], clone) == 1
    assert "postroom-client 77 is not recorded in releases.toml; recorded are: 0.1.0" in capsys.readouterr().err


def broken(wheel: Path, made: Path, remove: str = "", add: str = "", replace: tuple[str, bytes, bytes] | None = None):
    """A wheel that is not as it was built."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made / wheel.name, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if replace and name.endswith(replace[0]):
                assert replace[1] in data
                data = data.replace(replace[1], replace[2])
            if not (remove and name.endswith(remove)):
                target.writestr(name, data)
        if add:
            target.writestr(add, b"")
    return made / wheel.name


@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        ({"remove": "postroom_client/errors.pyi"}, "lacks postroom_client/errors.pyi"),
        ({"add": "tests/test_it.py"}, "contains tests/test_it.py, which is not part of the package"),
        ({"add": "postroom_client/more.txt"}, "RECORD does not list the files of the wheel"),
        ({"replace": ("/errors.py", b"class", b"clazz")}, "another checksum of postroom_client/errors.py"),
        ({"remove": "licenses/LICENSE"}, "RECORD does not list"),
    ],
)
def test_a_wheel_that_differs_from_its_package_is_refused(fault, reported: str, client_wheel: Path, tmp_path) -> None:
    with pytest.raises(ReleaseError, match=reported):
        check_wheel(broken(client_wheel, tmp_path, **fault), find_package("client"))


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's, as it stands here."""
    wheel = build(find_package("client"), tmp_path_factory.mktemp("wheel"), "wheel")
    check_wheel(wheel, find_package("client"))
    return wheel


def test_metadata_that_an_index_would_refuse_are_reported(clone: Path, tmp_path: Path) -> None:
    change(clone, "packages/client/pyproject.toml", 'license = "MIT"\n', "")
    client = find_package("client", clone)
    with pytest.raises(ReleaseError, match="the metadata lack license"):
        check_wheel(build(client, tmp_path / "wheel", "wheel"), client)


def test_a_shallow_clone_says_how_to_get_what_it_lacks(tmp_path: Path, capsys) -> None:
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", tmp_path / "shallow"], check=True)
    release = find_release("postroom-client", "0.1.0", tmp_path / "shallow")
    assert main(["client", "--version", "0.1.0", "--out", str(tmp_path / "out")], tmp_path / "shallow") == 1
    assert capsys.readouterr().err == (
        f"release: this clone lacks commit {release.commit} (it is shallow: git fetch --unshallow)\n"
    )


def test_files_without_a_clone_say_that_a_release_needs_one(clone: Path, tmp_path: Path) -> None:
    unpack_commit(git(clone, "rev-parse", "HEAD"), tmp_path / "files", clone)
    with pytest.raises(ReleaseError, match="is not a clone, and releases are built from their commits"):
        check_commit("0" * 40, tmp_path / "files")


def test_every_release_is_of_a_commit_of_this_branch_and_recorded_once() -> None:
    releases = recorded()
    assert len({(one.package, one.version) for one in releases}) == len(releases)
    for commit in {one.commit for one in releases}:
        check_commit(commit)
        git(ROOT, "merge-base", "--is-ancestor", commit, "HEAD")
    assert {one.package for one in releases} <= {one.distribution for one in packages()}


@pytest.mark.parametrize("package", packages(), ids=[package.name for package in packages()])
def test_a_package_does_not_install_beside_siblings_that_it_was_not_tested_with(package: Package) -> None:
    """An upgrade of it alone leaves older siblings where its range allows them: they are from this second number on."""
    for line in package.project["project"]["dependencies"]:
        needed = Requirement(line)
        if needed.name.startswith("postroom-"):
            now = Version(find_package(needed.name).version)
            assert needed.specifier.contains(now)
            assert not needed.specifier.contains(f"{now.major}.{now.minor - 1}.999")


@pytest.mark.parametrize("package", packages(), ids=[package.name for package in packages()])
def test_a_package_that_has_changed_since_its_release_has_a_later_version(package: Package) -> None:
    last = last_of(package.distribution)
    if last is None:  # what was never released may have any version
        return
    paths = [os.path.relpath(path, ROOT) for path in (package.source, package.directory / "pyproject.toml")]
    changed = git(ROOT, "diff", "--name-only", last.commit, "--", *paths)
    if changed and package.version == last.version:
        pytest.fail(
            f"{package.distribution} {last.version} is released, and has changed since: give it the next version, and a"
            f" section in its changelog:\n{changed}"
        )
