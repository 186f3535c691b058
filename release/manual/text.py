"""The reference as text, for ``docs/cli.md``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection

from .model import Command, Option, Paragraph

WIDTH = 110
_COLUMN = 34


def table(program: Command, link: Callable[[Command], str]) -> str:
    """One row for each command that does something itself; ``link`` returns the target of its link."""
    lines = ["| command | what it does |", "|---|---|"]
    for command in program.walk():
        if not command.commands or "[COMMAND]" in command.usage:
            lines.append(f"| [`{command.path}`]({link(command)}) | {_cell(command.summary)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text.replace("|", "\\|").rstrip(".")


def anchor(command: Command) -> str:
    """The anchor of a heading that is a command's words."""
    return "#" + command.page


def reference(program: Command) -> str:
    """A heading and the help of each command of a program. Options that all commands inherit are described once."""
    parts = []
    for command in program.walk():
        level = min(len(command.path.split()) + 1, 4)
        inherited = set(program.options) & set(command.options) if command is not program else set()
        parts.append(f"{'#' * level} {command.path}\n\n```text\n{help_text(command, inherited)}\n```")
    return "\n\n".join(parts)


def help_text(command: Command, inherited: Collection[Option] = ()) -> str:
    """The help of a command, laid out the same whatever library and version parses it."""
    usage = textwrap.wrap(f"Usage: {command.path} {command.usage}", WIDTH, subsequent_indent="       ")
    parts = ["\n".join(usage)]
    described = command.description or (Paragraph(command.summary[:1].upper() + command.summary[1:] + "."),)
    parts += [_paragraph(one, "  ") for one in described]
    # Help stands at the end, as click has it.
    own = sorted((one for one in command.options if one not in inherited), key=lambda one: "--help" in one.names)
    if own:
        parts.append("Options:\n" + "\n".join(_entry(option.label, option.text) for option in own))
    if inherited:
        names = [one.names[-1] for one in command.options if one in inherited]
        parts.append(_paragraph(Paragraph(f"Also, as of {command.path.split()[0]}: {', '.join(names)}."), ""))
    if command.commands:
        width = max(len(one.path) for one in command.commands) - len(command.path) + 3
        lines = [_entry(one.path.removeprefix(command.path + " "), one.summary, width) for one in command.commands]
        parts.append("Commands:\n" + "\n".join(lines))
    parts += [_paragraph(one, "") for one in command.ending]
    return "\n\n".join(parts)


def _paragraph(paragraph: Paragraph, indent: str) -> str:
    if paragraph.is_preformatted:
        return textwrap.indent(paragraph.text, indent)
    return textwrap.fill(paragraph.text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _entry(label: str, text: str, column: int = _COLUMN) -> str:
    lines = textwrap.wrap(text, WIDTH - column, break_on_hyphens=False)
    if len(label) + 4 > column:
        return "\n".join([f"  {label}", *(" " * column + line for line in lines)])
    first, *rest = lines or [""]
    return "\n".join([f"  {label:<{column - 2}}{first}".rstrip(), *(" " * column + line for line in rest)])
