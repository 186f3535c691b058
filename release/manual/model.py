"""What there is to say about a command, whatever library parses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Option:
    """An option, or a named argument without ``names``."""

    names: tuple[str, ...]
    value: str  # what stands for its value, empty for a flag
    text: str
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """As ``--help`` shows it."""
        return ", ".join(self.names) + (f" {self.value}" if self.value else "")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; the lines of a preformatted one stay as they are."""

    text: str
    is_preformatted: bool = False


@dataclass(frozen=True)
class Command:
    """A command, or a program: the words that call it, and all that it has below."""

    path: str
    usage: str  # behind the path
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
        """It and all below it, from the top."""
        yield self
        for command in self.commands:
            yield from command.walk()


def in_paragraphs(text: str) -> tuple[Paragraph, ...]:
    """A text whose paragraphs are parted by empty lines; those that begin with a line of ``\\b`` are preformatted, as
    click has it."""
    found = []
    for part in text.strip("\n").split("\n\n"):
        mark, _, rest = part.partition("\n")
        is_preformatted = mark.strip() == "\b"
        found.append(Paragraph(rest if is_preformatted else " ".join(part.split()), is_preformatted))
    return tuple(one for one in found if one.text)
