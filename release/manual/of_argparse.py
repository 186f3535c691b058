"""Commands that argparse parses. Its own help differs from one Python to the next; what it knows does not."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from .model import Command, Option, Paragraph, in_paragraphs


def read(parser: argparse.ArgumentParser, path: str, summary: str) -> Command:
    """A parser and all below it."""
    actions = list(_shown(parser))
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    below = []
    for group in groups:
        texts = {one.dest: one.help or "" for one in group._choices_actions}
        below += [read(one, f"{path} {name}", texts[name]) for name, one in group.choices.items()]
    return Command(
        path,
        _usage(parser, path, bool(groups), actions),
        summary,
        _paragraphs(parser, parser.description),
        tuple(_option(one) for one in actions),
        tuple(below),
        _paragraphs(parser, parser.epilog),
    )


def _shown(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for one in parser._actions:
        if one.option_strings and one.help != argparse.SUPPRESS:
            yield one


def _usage(parser: argparse.ArgumentParser, path: str, has_commands: bool, actions: list[argparse.Action]) -> str:
    if parser.usage:
        return parser.usage.partition(f" {path.split()[-1]} ")[2]
    needed = [f"{one.option_strings[0]} {one.metavar}" for one in actions if one.required]
    return " ".join([*needed, "[OPTIONS]", *(["COMMAND"] if has_commands else [])])


def _paragraphs(parser: argparse.ArgumentParser, text: str | None) -> tuple[Paragraph, ...]:
    if parser.formatter_class is not argparse.RawDescriptionHelpFormatter:
        return in_paragraphs(text or "")
    return tuple(Paragraph(part, True) for part in (text or "").strip("\n").split("\n\n") if part)


def _option(action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else str(action.metavar or "|".join(choices))
    text = (action.help or "").replace("%%", "%")
    return Option(tuple(action.option_strings), value, text, choices)
