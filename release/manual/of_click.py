"""Commands that click parses."""

from __future__ import annotations

import inspect

import click

from .model import Command, Option, in_paragraphs


def read(command: click.Command, path: str, parent: click.Context | None = None) -> Command:
    """A command and all below it, as ``--help`` tells of them; hidden ones are left out."""
    names = command.context_settings.get("help_option_names") or (parent.help_option_names if parent else ["--help"])
    context = click.Context(command, parent=parent, info_name=path.split()[-1], help_option_names=list(names))
    below = []
    if isinstance(command, click.Group):
        known = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        below = [read(one, f"{path} {name}", context) for name, one in known if one is not None and not one.hidden]
    return Command(
        path,
        " ".join(command.collect_usage_pieces(context)),
        command.get_short_help_str(limit=10_000),
        in_paragraphs(inspect.cleandoc(command.help or "")),
        tuple(option for one in command.get_params(context) if (option := _option(one, context))),
        tuple(below),
        in_paragraphs(inspect.cleandoc(command.epilog or "")),
    )


def _option(parameter: click.Parameter, context: click.Context) -> Option | None:
    record = parameter.get_help_record(context)
    if record is None or not record[1]:  # what is hidden, and an argument that the usage shows
        return None
    _, text = record
    names = () if isinstance(parameter, click.Argument) else (*parameter.opts, *parameter.secondary_opts)
    is_flag = isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)
    value = "" if is_flag else parameter.make_metavar(context)
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
    return Option(names, value, " ".join(text.split()), tuple(map(str, choices)))
