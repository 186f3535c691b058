"""``scripts/release``: one package, built from a commit, checked as a user gets it, and written down."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

from .building import build, check_sdist, check_wheel
from .errors import ReleaseError
from .installing import Environment
from .packages import ROOT, Package, find_package, with_siblings
from .recorded import (
    FILE,
    Release,
    check_commit,
    commit_time,
    find_release,
    git,
    last_of,
    record,
    recorded,
    unpack_commit,
)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run ``scripts/release``; the exit status: 0 done, 1 not fit for release, 2 wrong use."""
    parser = argparse.ArgumentParser(
        prog="scripts/release",
        description="Build a package of this commit, or of a recorded release, and check it as a user gets it.",
        epilog="What is built is what is committed; files that are not are not in it. See docs/release.md.",
    )
    parser.add_argument("package", nargs="?", metavar="PACKAGE", help="client, common, console, daemon or pipeline")
    parser.add_argument("--version", metavar="VERSION", help=f"build this release of {FILE} again; last: the newest")
    parser.add_argument("--record", action="store_true", help=f"write it down in {FILE}, once all checks have passed")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="where it is put (dist)")
    parser.add_argument("--list", action="store_true", help="list the releases that are recorded")
    options = parser.parse_args(arguments)
    if options.list == bool(options.package) or (options.record and options.version):
        parser.error("PACKAGE or --list, and with --version there is nothing to record")
    try:
        if options.list:
            for one in recorded(root):
                print(f"{one.package} {one.version} {one.commit}")
        else:
            _release(options.package, options.version, options.record, options.out, root)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _release(name: str, version: str | None, is_recorded: bool, out: Path, root: Path) -> None:
    package = find_package(name, root)
    if version:
        release = find_release(package.distribution, version, root)
    else:
        release = Release(package.distribution, package.version, git(root, "rev-parse", "HEAD"))
        check_fit(package, root)
    with tempfile.TemporaryDirectory(prefix="postroom-release-") as directory:
        made = make_checked(release, Path(directory), root)
        out.mkdir(parents=True, exist_ok=True)
        for path in made:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            print(f"{digest}  {shutil.copy2(path, out)}")
    if is_recorded:
        record(release, root)
        said = f"git commit -m 'Release: {release.package} {release.version}' -- {FILE}"
        print(f"release: recorded; now: {said}", file=sys.stderr)


def check_fit(package: Package, root: Path = ROOT) -> None:
    """Raises ``ReleaseError`` when a package of the present commit should not become a release."""
    changed = git(root, "status", "--porcelain", "--", str(package.directory))
    if changed:
        raise ReleaseError(f"{package.directory.name} has changes that are not committed:\n{changed}")
    try:
        version = Version(package.version)
    except InvalidVersion:
        raise ReleaseError(f"{package.version} is no version") from None
    last = last_of(package.distribution, root)
    if last and version <= Version(last.version):
        raise ReleaseError(f"{last.version} is released: {package.version} must be a later version")
    if next(iter(package.changes), None) != package.version:
        raise ReleaseError(f"CHANGELOG.md of {package.name} must begin with ## {package.version}")
    if not package.changes[package.version]:
        raise ReleaseError(f"CHANGELOG.md of {package.name} says nothing of {package.version}")


def make_checked(release: Release, workspace: Path, root: Path = ROOT) -> list[Path]:
    """Wheel and source archive of a release, built from its commit and checked. Raises ``ReleaseError``."""
    check_commit(release.commit, root)
    dated_s = commit_time(release.commit, root)
    checkout = unpack_commit(release.commit, workspace / "checkout", root)
    package = find_package(release.package, checkout)
    if package.version != release.version:
        raise ReleaseError(f"{release.commit} has {package.distribution} {package.version}, not {release.version}")
    wheels = {one.name: build(one, workspace / "wheels", "wheel", dated_s) for one in with_siblings(package)}
    wheel = wheels[package.name]
    check_wheel(wheel, package)
    sdist = build(package, workspace / "sdist", "sdist", dated_s)
    check_sdist(sdist, package, wheel, workspace / "unpacked", dated_s)
    environment = Environment(workspace / "environment")
    outside = {one for sibling in with_siblings(package) for one in sibling.outside}
    environment.install(workspace / "wheels", [package.distribution], outside, checkout / "constraints.txt")
    environment.check(package.module, package.scripts)
    return [wheel, sdist]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
