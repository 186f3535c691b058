"""A command as the manual describes it, whatever library parses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Option:
    """An option; an argument with a help text is one without ``names``."""

    names: tuple[str, ...]
    value: str  # the metavar; empty for a flag
    text: str
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Names and metavar, in the form of ``--help``."""
        return ", ".join(self.names) + (f" {self.value}" if self.value else "")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text. A preformatted one keeps its lines."""

    text: str
    is_preformatted: bool = False


@dataclass(frozen=True)
class Command:
    """A command or a whole program, with its subcommands."""

    path: str
    usage: str  # what follows the path
    summary: str
    description: tuple[Paragraph, ...]
    options: tuple[Option, ...]
    commands: tuple[Command, ...] = ()
    ending: tuple[Paragraph, ...] = ()
    aliases: tuple[str, ...] = field(default=(), compare=False)

    @property
    def page(self) -> str:
        """The name of its manual page."""
        return self.path.replace(" ", "-")

    def walk(self) -> Iterator[Command]:
        """This command and all below it, parents first."""
        yield self
        for command in self.commands:
            yield from command.walk()


def in_paragraphs(text: str) -> tuple[Paragraph, ...]:
    """Split a text at empty lines. A paragraph whose first line is ``\\b`` is preformatted, as in click."""
    found = []
    for part in text.strip("\n").split("\n\n"):
        mark, _, rest = part.partition("\n")
        is_preformatted = mark.strip() == "\b"
        found.append(Paragraph(rest if is_preformatted else " ".join(part.split()), is_preformatted))
    return tuple(one for one in found if one.text)
