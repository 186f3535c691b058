"""``scripts/release``: builds a package from a commit, checks it in the form that users get, and records it."""

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
    """Run ``scripts/release``; the exit status: 0 done, 1 not fit for release, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="scripts/release",
        description="Build a package of this commit or of a recorded release, and check it in the form that users get.",
        epilog="Only committed files are built. See docs/release.md.",
    )
    names = "client, cluster, common, console, daemon, gateway or pipeline"
    parser.add_argument("package", nargs="?", metavar="PACKAGE", help=names)
    parser.add_argument("--version", metavar="VERSION", help=f"rebuild this release of {FILE}; last: the newest")
    parser.add_argument("--record", action="store_true", help=f"record it in {FILE} after all checks have passed")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="destination (dist)")
    parser.add_argument("--list", action="store_true", help="list the recorded releases")
    options = parser.parse_args(arguments)
    if options.list == bool(options.package) or (options.record and options.version):
        parser.error("give PACKAGE or --list; --record does not go with --version")
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
        print(f"release: recorded; now run: {said}", file=sys.stderr)


def check_fit(package: Package, root: Path = ROOT) -> None:
    """Raises ``ReleaseError`` if the package of the current commit is not fit for release."""
    changed = git(root, "status", "--porcelain", "--", str(package.directory))
    if changed:
        raise ReleaseError(f"{package.directory.name} has uncommitted changes:\n{changed}")
    try:
        version = Version(package.version)
    except InvalidVersion:
        raise ReleaseError(f"{package.version} is not a version") from None
    last = last_of(package.distribution, root)
    if last and version <= Version(last.version):
        raise ReleaseError(f"{last.version} is released: the version must be later than that, not {package.version}")
    if next(iter(package.changes), None) != package.version:
        raise ReleaseError(f"CHANGELOG.md of {package.name} must begin with ## {package.version}")
    if not package.changes[package.version]:
        raise ReleaseError(f"CHANGELOG.md of {package.name} has no lines for {package.version}")


def make_checked(release: Release, workspace: Path, root: Path = ROOT) -> list[Path]:
    """Build and check wheel and source archive of a release, from its commit; the paths. Raises ``ReleaseError``."""
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
