"""The programs of the workspace."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Final

import click

from postroom_client import _cli_options
from postroom_client._cli_words import GROUPS, SUBCOMMANDS

from . import of_argparse, of_click
from .model import Command

#: Names under which the C++ system's scripts call the client.
CLIENT_ALIASES = ("yirangmq",)


def client() -> Command:
    """``postroom``; the options of a command are made only when its word is there, so here are all words."""
    words = [part for word, _, _ in SUBCOMMANDS for part in word.split()]
    parser = _cli_options._make_parser([*words, *GROUPS, "work"], False)  # type: ignore[no-untyped-call]
    summary = "commands of the Postroom message queue, through its mailbox directory"
    return replace(of_argparse.read(parser, "postroom", summary), aliases=CLIENT_ALIASES)


#: The programs and the packages that they come from.
PACKAGES: Final = {
    "postroom": "postroom-client",
    "postroomd": "postroom-daemon",
    "postroom-console": "postroom-console",
    "postroom-pipeline": "postroom-pipeline",
}


def group_of(name: str) -> click.Group | None:
    """The definitions of a program that click parses; None for the client."""
    if name == "postroom":
        return None
    group = import_module(PACKAGES[name].replace("-", "_") + ".cli").main
    assert isinstance(group, click.Group), name
    return group


def program(name: str) -> Command:
    """What there is to say about a program."""
    group = group_of(name)
    return client() if group is None else of_click.read(group, name)
