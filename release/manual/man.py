"""Manual pages in the man macros: one for each program and each of its commands."""

from __future__ import annotations

import re
from pathlib import Path

from .model import Command, Paragraph

#: Sections of the manual: commands for everyone, and commands of the operator.
USER_SECTION, OPERATOR_SECTION = "1", "8"
OPERATORS_PROGRAMS = ("postroomd", "postroom-cluster", "postroom-gateway")
#: Characters that roff interprets, or prints as a character that a shell does not accept when it is pasted.
_ESCAPES = {"\\": "\\e", "-": "\\-", "^": "\\(ha", "~": "\\(ti", "`": "\\(ga"}


def section_of(command: Command) -> str:
    """The section of a command's page."""
    return OPERATOR_SECTION if command.path.split()[0] in OPERATORS_PROGRAMS else USER_SECTION


def write_pages(programs: list[Command], destination: Path, versions: dict[str, str]) -> list[Path]:
    """Write the pages of programs and of all commands below them into ``manN`` directories; the paths.

    ``versions`` maps names of programs to versions.
    """
    written = []
    for program in programs:
        section = section_of(program)
        source = f"{program.path} {versions[program.path]}"
        directory = destination / f"man{section}"
        directory.mkdir(parents=True, exist_ok=True)
        pages = {command.page: page(command, program, source) for command in program.walk()}
        pages |= dict.fromkeys(program.aliases, f".so man{section}/{program.page}.{section}\n")
        for name, text in pages.items():
            written.append(directory / f"{name}.{section}")
            written[-1].write_text(text, "utf-8")
    return written


def page(command: Command, program: Command, source: str) -> str:
    """A manual page."""
    summary = command.summary.rstrip(".")
    parts = [
        f'.TH {_quoted(command.page.upper())} {section_of(command)} "" {_quoted(source)} "Postroom"',
        ".SH NAME",
        f"{_plain(command.page)} \\- {_plain(summary[:1].lower() + summary[1:])}",
        ".SH SYNOPSIS",
        f".B {_plain(command.path)}",
        _plain(command.usage),
    ]
    if command.description:
        parts += [".SH DESCRIPTION", *_paragraphs(command.description)]
    if command.options:
        parts.append(".SH OPTIONS")
        for option in command.options:
            names = ", ".join(f"\\fB{_plain(name)}\\fR" for name in option.names)
            value = f"\\fI{_plain(option.value)}\\fR" if option.value else ""
            parts += [".TP", " ".join(filter(None, (names, value))), _plain(option.text)]
    if command.commands:
        parts.append(".SH COMMANDS")
        for one in command.commands:
            parts += [".TP", _reference(one), _plain(one.summary)]
    if command.ending:
        parts += [".SH NOTES", *_paragraphs(command.ending)]
    if command is not program:
        parts += [".SH SEE ALSO", _reference(program)]
    return "\n".join(parts) + "\n"


def _paragraphs(paragraphs: tuple[Paragraph, ...]) -> list[str]:
    lines = []
    for one in paragraphs:
        lines += [".PP", *([".nf"] if one.is_preformatted else [])]
        lines += [_plain(line) for line in one.text.splitlines()]
        lines += [".fi"] if one.is_preformatted else []
    return lines[1:] if lines[1:2] != [".nf"] else lines


def _reference(command: Command) -> str:
    return f"\\fB{_plain(command.page)}\\fR({section_of(command)})"


def _plain(text: str) -> str:
    """Escape a line, so that roff prints it unchanged and its hyphens can be copied."""
    text = "".join(_ESCAPES.get(char) or (char if char.isascii() else f"\\[u{ord(char):04X}]") for char in text)
    return re.sub(r"^([.'])", r"\\&\1", text)


def _quoted(text: str) -> str:
    return '"' + _plain(text).replace('"', "\\(dq") + '"'
