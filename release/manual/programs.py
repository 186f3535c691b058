"""The programs of the workspace, read from the definitions of their parsers: click's and argparse's."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import replace
from importlib import import_module
from typing import Final

import click

from postroom_client.cli import arguments
from postroom_client.cli.names import GROUPS, SUBCOMMANDS

from .model import Command, Option, Paragraph, in_paragraphs

#: The programs and the packages that contain them.
PACKAGES: Final = {
    "postroom": "postroom-client",
    "postroomd": "postroom-daemon",
    "postroom-cluster": "postroom-cluster",
    "postroom-console": "postroom-console",
    "postroom-gateway": "postroom-gateway",
    "postroom-pipeline": "postroom-pipeline",
}
#: Names under which the scripts of the C++ system call the client.
_CLIENT_ALIASES: Final = ("yirangmq",)


def program(name: str) -> Command:
    """A program and all its commands."""
    group = click_group(name)
    return _client() if group is None else _read_click(group, name)


def click_group(name: str) -> click.Group | None:
    """The definitions of a program that uses click; None for the client, which uses argparse."""
    if name == "postroom":
        return None
    group = import_module(PACKAGES[name].replace("-", "_") + ".cli").main
    assert isinstance(group, click.Group), name
    return group


def _client() -> Command:
    """``postroom``. Its parser defines the options of a command only if the command is among the arguments, so this
    passes the names of all."""
    words = [part for word, _, _ in SUBCOMMANDS for part in word.split()]
    parser = arguments.make_parser([*words, *GROUPS, "work"])  # type: ignore[no-untyped-call]
    summary = "commands of the Postroom message queue, through its mailbox directory"
    return replace(_read_argparse(parser, "postroom", summary), aliases=_CLIENT_ALIASES)


# --- click ----------------------------------------------------------------------------------------------------


def _read_click(command: click.Command, path: str, parent: click.Context | None = None) -> Command:
    names = command.context_settings.get("help_option_names") or (parent.help_option_names if parent else ["--help"])
    context = click.Context(command, parent=parent, info_name=path.split()[-1], help_option_names=list(names))
    below = []
    if isinstance(command, click.Group):
        all_below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        below = [_read_click(one, f"{path} {name}", context) for name, one in all_below if one and not one.hidden]
    return Command(
        path,
        " ".join(command.collect_usage_pieces(context)),
        command.get_short_help_str(limit=10_000),
        in_paragraphs(inspect.cleandoc(command.help or "")),
        tuple(option for one in command.get_params(context) if (option := _click_option(one, context))),
        tuple(below),
        in_paragraphs(inspect.cleandoc(command.epilog or "")),
    )


def _click_option(parameter: click.Parameter, context: click.Context) -> Option | None:
    record = parameter.get_help_record(context)
    if record is None or not record[1]:  # hidden, or an argument that only the usage shows
        return None
    names = () if isinstance(parameter, click.Argument) else (*parameter.opts, *parameter.secondary_opts)
    is_flag = isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)
    value = "" if is_flag else parameter.make_metavar(context)
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
    return Option(names, value, " ".join(record[1].split()), tuple(map(str, choices)))


# --- argparse: its own help differs between versions of Python, its definitions do not ------------------------


def _read_argparse(parser: argparse.ArgumentParser, path: str, summary: str) -> Command:
    shown = [one for one in parser._actions if one.option_strings and one.help != argparse.SUPPRESS]
    below = []
    for group in (one for one in parser._actions if isinstance(one, argparse._SubParsersAction)):
        summaries = {one.dest: one.help or "" for one in group._choices_actions}
        below += [_read_argparse(one, f"{path} {name}", summaries[name]) for name, one in group.choices.items()]
    if parser.usage:
        usage = parser.usage.partition(f" {path.split()[-1]} ")[2]
    else:
        required = [f"{one.option_strings[0]} {one.metavar}" for one in shown if one.required]
        usage = " ".join([*required, "[OPTIONS]", *(["COMMAND"] if below else [])])
    return Command(
        path,
        usage,
        summary,
        _argparse_paragraphs(parser, parser.description),
        tuple(_argparse_option(one) for one in shown),
        tuple(below),
        _argparse_paragraphs(parser, parser.epilog),
    )


def _argparse_paragraphs(parser: argparse.ArgumentParser, text: str | None) -> tuple[Paragraph, ...]:
    if parser.formatter_class is not argparse.RawDescriptionHelpFormatter:
        return in_paragraphs(text or "")
    return tuple(Paragraph(part, True) for part in (text or "").strip("\n").split("\n\n") if part)


def _argparse_option(action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else str(action.metavar or "|".join(choices))
    return Option(tuple(action.option_strings), value, (action.help or "").replace("%%", "%"), choices)
