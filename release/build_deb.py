"""``scripts/build-deb``: Debian packages of this checkout, or of the recorded releases."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from .building import build
from .debian import BINARIES, Binary, Source, build_binary, check_tools
from .errors import ReleaseError
from .packages import ROOT, Package, find_package, packages, with_siblings
from .recorded import commit_time, find_release, git, last_of, unpack_commit

#: The packages of the workspace that Debian packages contain.
PARTS = ("client", "cluster", "common", "console", "daemon", "gateway")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Run ``scripts/build-deb``; the exit status: 0 built, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="scripts/build-deb",
        description="Build the Debian packages of this checkout, for this machine and its Debian.",
        epilog="They bring their own Python environment, for Debian's Python. See docs/release.md.",
    )
    parser.add_argument("names", nargs="*", metavar="PACKAGE", help=f"only these of {', '.join(_names())}")
    parser.add_argument("--recorded", action="store_true", help="build the last releases, each from its commit")
    parser.add_argument(
        "--compiled", action="store_true", help="with the daemon's hot path as machine code; takes some minutes"
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR", help="destination (dist)")
    parser.add_argument("--python", type=Path, default=Path("/usr/bin/python3"), help="Debian's interpreter")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(_names())
    if unknown:
        parser.error(f"there is no package {', '.join(sorted(unknown))}")
    wanted = [one for one in BINARIES if one.name in (options.names or _names())]
    if options.recorded and not options.names:  # of a package without a release there is none to build
        wanted = [one for one in wanted if last_of(f"postroom-{one.versioned_by}", root)]
    try:
        for path in build_all(wanted, options.out, options.python, options.recorded, root, options.compiled):
            print(path)
    except ReleaseError as error:
        print(f"build-deb: {error}", file=sys.stderr)
        return 1
    return 0


def _names() -> list[str]:
    return [binary.name for binary in BINARIES]


def build_all(
    binaries: list[Binary],
    out: Path,
    python: Path = Path("/usr/bin/python3"),
    recorded: bool = False,
    root: Path = ROOT,
    is_compiled: bool = False,
) -> list[Path]:
    """Build packages; their paths. Raises ``ReleaseError``."""
    check_tools(python)
    with tempfile.TemporaryDirectory(prefix="postroom-deb-") as directory:
        workspace = Path(directory)
        if recorded:
            parts, packaging, dated_s = _recorded_parts(workspace, root, _needed(binaries, root))
        else:
            needed = _needed(binaries, root)
            parts = {one.name: one for one in packages(root) if one.name in needed}
            packaging, dated_s = root / "packaging", _last_change(root)
        for part in parts.values():
            build(part, workspace / "wheels", "wheel", dated_s, is_compiled)
        source = Source(parts, workspace / "wheels", packaging, root / "constraints.txt", python, dated_s)
        return [
            build_binary(one, _version(parts[one.versioned_by], recorded, root), source, workspace / one.name, out)
            for one in binaries
        ]


def _needed(binaries: list[Binary], root: Path) -> set[str]:
    """The packages of the workspace that Debian packages contain."""
    return {
        part.name
        for binary in binaries
        for name in binary.packages
        for part in with_siblings(find_package(name, root))
        if part.name in PARTS
    }


def _recorded_parts(workspace: Path, root: Path, needed: set[str]) -> tuple[dict[str, Package], Path, int]:
    """The packages of the last releases, the packaging that belongs to the daemon's, and its date.

    The packaging of this checkout stands in where the release is older than all packaging.
    """
    found = {}
    for name in sorted(needed):
        release = find_release(f"postroom-{name}", "last", root)
        checkout = unpack_commit(release.commit, workspace / "checkouts" / name, root)
        found[name] = Package(checkout / "packages" / name)
    daemon = find_release("postroom-daemon", "last", root)
    packaging = workspace / "checkouts" / "daemon" / "packaging"
    return found, packaging if packaging.exists() else root / "packaging", commit_time(daemon.commit, root)


def _last_change(root: Path) -> int:
    try:
        return commit_time("HEAD", root)
    except ReleaseError:  # a checkout without git can be packaged, too
        return int(time.time())


def _version(package: Package, recorded: bool, root: Path) -> str:
    """The Debian version: that of the release, or for an unreleased package one that sorts before it."""
    if recorded:
        return f"{package.version}-1"
    last = last_of(package.distribution, root)
    try:
        commit = git(root, "rev-parse", "--short=12", "HEAD")
        if git(root, "status", "--porcelain", "--", "packages", "packaging"):
            commit += ".changed"
    except ReleaseError:
        commit = "unknown"
    moment = time.strftime("%Y%m%d%H%M%S", time.gmtime(_last_change(root)))
    mark = "+" if last and last.version == package.version else "~"
    return f"{package.version}{mark}{moment}.{commit}-1"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
