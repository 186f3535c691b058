"""Nothing but the screen imports the libraries for the screen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import postroom_console
from postroom_console import cli

PACKAGE = Path(postroom_console.__file__).parent
MODULES = sorted(
    ".".join((PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in (*PACKAGE.glob("*.py"), *(PACKAGE / "data").glob("*.py"))
)
PROBE = """
import sys
{}
print(*sorted({{name.partition(".")[0] for name in sys.modules}} & {{"textual", "rich"}}))
"""


def probe(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROBE.format(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_nothing_but_the_screens_imports_the_library_for_screens() -> None:
    assert "postroom_console.data.live" in MODULES and "postroom_console.cli" in MODULES
    assert probe("\n".join(f"import {module}" for module in MODULES)) == ""


def test_the_import_probe_detects_an_import() -> None:
    assert probe("import postroom_console.tui.app") == "rich textual"


@pytest.mark.parametrize(
    "words", [["--help"], ["--once"], ["--json"], ["watch", "--no-follow"], ["--replay", "x", "--once"]]
)
def test_no_command_without_a_screen_imports_it(words: list[str], tmp_path: Path) -> None:
    code = f"""
from postroom_console.cli import main
try:
    main(["--root", {str(tmp_path)!r}, *{words!r}])
except SystemExit as end:
    assert end.code in (0, {cli.EXIT_FAILED}, {cli.EXIT_UNREACHABLE}), end.code
"""
    assert probe(code) == ""
