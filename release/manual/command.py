"""``scripts/make-manual``: manual pages and completions of all programs, for a prefix."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import completion, man
from .programs import PACKAGES, group_of, program


def installed() -> dict[str, str]:
    """The programs that are installed here, and their versions."""
    found = {}
    for name, package in PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:  # the pipeline is not part of every environment
            continue
    return found


def write_manual(share: Path, names: list[str], places: completion.Places = completion.PLACES) -> list[Path]:
    """Write manual pages and completions of programs below a ``share`` directory; their paths."""
    programs = [program(name) for name in names]
    made = man.write_pages(programs, share / "man", installed())
    for one in programs:
        group = group_of(one.path)
        scripts = completion.of_click(group, one.path) if group else completion.written_out(one)
        made += completion.write(one.path, scripts, share, one.aliases, places)
    return made


def main(arguments: list[str]) -> int:
    """Run ``scripts/make-manual``; the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/make-manual", description="Write manual pages and completions.")
    parser.add_argument("prefix", type=Path, metavar="PREFIX", help="they go to PREFIX/share")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of these only: {', '.join(installed())}")
    options = parser.parse_args(arguments)
    unknown = set(options.programs) - set(installed())
    if unknown:
        parser.error(f"there is no program {', '.join(sorted(unknown))}")
    made = write_manual(options.prefix / "share", options.programs or list(installed()))
    print(f"make-manual: {len(made)} files in {options.prefix / 'share'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
