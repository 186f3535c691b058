"""Manual pages and completions cover all commands and options, and the shells and man read them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from postroom_client.cli.arguments import parse
from postroom_client.cli.names import LOG_WORDS
from release.manual.command import main, write_manual
from release.manual.man import section_of
from release.manual.model import Command
from release.manual.programs import PACKAGES, program
from release.packages import packages

SCRIPTS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is written, for all programs."""
    directory = tmp_path_factory.mktemp("manual")
    write_manual(directory, list(PACKAGES))
    return directory


def page(share: Path, command: Command) -> str:
    """The text of a command's page, without roff's escapes."""
    section = section_of(command)
    text = (share / "man" / f"man{section}" / f"{command.page}.{section}").read_text("ascii")
    for escape, char in (
        ("\\-", "-"),
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\(ga", "`"),
        ("\\(ti", "~"),
        ("\\(ha", "^"),
    ):
        text = text.replace(escape, char)
    return re.sub(r"\\\[u([0-9A-F]+)\]", lambda found: chr(int(found[1], 16)), text)


def test_every_program_that_a_package_installs_has_a_page_and_completions(share: Path) -> None:
    for script in (script for package in packages() for script in package.scripts):
        assert list(share.glob(f"man/man*/{script}.*")), script
        for place in ("bash-completion/completions/{}", "zsh/site-functions/_{}", "fish/vendor_completions.d/{}.fish"):
            assert (share / place.format(script)).exists(), place.format(script)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_option_of_every_command_is_on_its_page(name: str, share: Path) -> None:
    for command in program(name).walk():
        text = page(share, command)
        assert f"\n.B {command.path}\n" in text
        for option in command.options:
            assert f"\n.TP\n{option.label}\n{option.text}" in text, (command.path, option)
        for below in command.commands:
            assert f"\n{below.page}({section_of(below)})\n" in text


#: Words of the client that are short for another command: its page has the options.
SHORT = {f"postroom log {word}" for word, _ in LOG_WORDS}


@pytest.mark.parametrize(
    "command",
    [one for one in program("postroom").walk() if not one.commands and one.path not in SHORT],
    ids=lambda c: c.path,
)
def test_a_page_of_the_client_lists_the_options_of_its_help(command: Command, capsys) -> None:
    with pytest.raises(SystemExit):
        parse([*command.path.split()[1:], "--help"])
    lines = re.findall(r"^  (-.*?)(?:  .*)?$", capsys.readouterr().out, re.MULTILINE)
    reported = {name for line in lines for name in re.findall(r"--[a-z][a-z-]*", line)}
    assert reported == {name for option in command.options for name in option.names if name.startswith("--")}


@pytest.mark.parametrize(
    "command", [one for one in program("postroom").walk() if one.path in SHORT], ids=lambda c: c.path
)
def test_the_page_of_a_word_that_is_short_for_a_command_names_that_command(command: Command, share: Path) -> None:
    other = re.search(r"short for ([a-z -]+?)(?: -| with|$)", command.summary)
    assert other and any(one.path == f"postroom {other[1]}" for one in program("postroom").walk())
    assert other[0] in page(share, command)


def test_man_reads_every_page_without_a_warning(share: Path) -> None:
    pages = sorted(path.relative_to(share / "man") for path in (share / "man").glob("man*/*"))
    assert len(pages) > 100
    formatted = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", *pages], cwd=share / "man", capture_output=True, text=True
    )
    assert (formatted.returncode, formatted.stderr) == (0, "")


def completed(share: Path, program: str, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=();'
        ' function=$(complete -p "$1" | sed "s/.*-F \\([^ ]*\\).*/\\1/"); compopt() { :; }; $function "$1";'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    completions = share / "bash-completion" / "completions" / program
    environment = dict(os.environ, PATH=f"{SCRIPTS}:{os.environ['PATH']}")
    command = ["bash", "--norc", "-c", script, "bash", str(completions), program, *words]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=share)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["publish-"], ["publish-batch"]),
        (["policy", ""], ["get", "set", "patterns", "set-patterns"]),
        (["schedule", "se"], ["set"]),
        (["pause", "--op"], ["--operation"]),
        (["pause", "--operation", ""], ["consume", "publish"]),
        (["--ipc-root", "publish", "unh"], ["unhold"]),
        (["consume", "--queue", "publish", "--vis"], ["--visibility", "--visibility-timeout-sec"]),
        (["policy", "set", "--pol"], ["--policy"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["postroom", "yirangmq"])
def test_bash_completes_the_client(name: str, words: list[str], offered: list[str], share: Path) -> None:
    found = completed(share, name, *words)
    assert [one for one in found if words[-1] != "" or not one.startswith("-")] == offered


def test_bash_completes_the_program_that_work_runs(share: Path) -> None:
    assert "bash" in completed(share, "postroom", "work", "--queue", "q", "--", "bas")


@pytest.mark.parametrize(
    ("words", "offered"),
    [(["postroomd", "re"], ["repair", "restore"]), (["postroom-console", "--rea"], ["--read-only"])],
    ids=" ".join,
)
def test_bash_asks_the_other_programs(words: list[str], offered: list[str], share: Path) -> None:
    assert completed(share, *words) == offered


@pytest.mark.parametrize("place", ["zsh/site-functions/_postroom", "fish/vendor_completions.d/postroom.fish"])
def test_zsh_and_fish_complete_every_word(place: str, share: Path) -> None:
    text = (share / place).read_text("utf-8")
    for command in program("postroom").walk():
        assert command.path.split()[-1] in text
        assert command.summary.replace("'", "'\\''") in text or not command.path.count(" ")


def test_only_the_files_of_the_requested_program_are_written(tmp_path: Path) -> None:
    assert main([str(tmp_path), "postroomd"]) == 0
    assert {path.name.split(".")[0].split("-")[0].strip("_") for path in tmp_path.rglob("*.*") if path.is_file()} == {
        "postroomd"
    }
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), "postroomx"])
