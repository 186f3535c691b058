"""``scripts/make-manual``: manual pages and completions of all programs, below a prefix."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import completion, man
from .programs import PACKAGES, click_group, program


def installed() -> dict[str, str]:
    """The programs of the packages that are installed here, with their versions."""
    versions = {}
    for name, package in PACKAGES.items():
        try:
            versions[name] = version(package)
        except PackageNotFoundError:  # not every environment contains the pipeline
            continue
    return versions


def write_manual(share: Path, names: list[str], places: completion.Places = completion.PLACES) -> list[Path]:
    """Write manual pages and completions of programs below a ``share`` directory; the paths of the files."""
    programs = [program(name) for name in names]
    written = man.write_pages(programs, share / "man", installed())
    for one in programs:
        group = click_group(one.path)
        scripts = completion.of_click(group, one.path) if group else completion.standalone(one)
        written += completion.write(one.path, scripts, share, one.aliases, places)
    return written


def main(arguments: list[str]) -> int:
    """Run ``scripts/make-manual``; the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/make-manual", description="Write manual pages and completions.")
    parser.add_argument("prefix", type=Path, metavar="PREFIX", help="the files go to PREFIX/share")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"only these: {', '.join(installed())}")
    options = parser.parse_args(arguments)
    unknown = set(options.programs) - set(installed())
    if unknown:
        parser.error(f"unknown program: {', '.join(sorted(unknown))}")
    written = write_manual(options.prefix / "share", options.programs or list(installed()))
    print(f"make-manual: {len(written)} files in {options.prefix / 'share'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
