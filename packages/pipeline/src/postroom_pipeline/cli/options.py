"""Options and parameter types that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import click

_Command = Callable[..., Any]
_SPAN: Final = re.compile(r"(\d+)([smhd])")
_SPANS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZE: Final = re.compile(r"(\d+)([kMG])B?")
_SIZES: Final = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


class Span(click.ParamType[int]):
    """A duration, in seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SPAN.fullmatch(value)
        if not match or not int(match[1]):
            self.fail(f"{value!r} is not a duration such as 90s, 10m, 1h or 7d", param, ctx)
        return int(match[1]) * _SPANS_S[match[2]]


class Size(click.ParamType[int]):
    """A size between two bounds, in bytes."""

    name = "size"

    def __init__(self, least: str, most: str) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size, least, most = map(_size, (value, self._least, self._most))
        if size is None or not (least or 0) <= size <= (most or 0):
            self.fail(f"{value!r} is not a size from {self._least} to {self._most}", param, ctx)
        return size


def _size(text: str) -> int | None:
    match = _SIZE.fullmatch(text)
    return int(match[1]) * _SIZES[match[2]] if match else None


def landing_option(command: _Command) -> _Command:
    """``--in``: the directory of the snapshots, ``landing``."""
    return click.option(
        "--in", "landing", required=True, metavar="DIR", help="The directory of the snapshots; subdirectories too."
    )(command)


def tables_option(command: _Command) -> _Command:
    """``--out``: the directory of the tables, ``tables``."""
    return click.option("--out", "tables", required=True, metavar="DIR", help="The directory of the tables.")(command)


def reports_option(command: _Command) -> _Command:
    """``--no-reports``, for every command that builds reports."""
    return click.option(
        "--no-reports", is_flag=True, help="Do not build reports; the next run without this option builds them."
    )(command)


def spark_options(command: _Command) -> _Command:
    """``--conf``, for every command that starts Spark: the user's settings, ``given``."""

    def gather(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
        given = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals or not name.startswith("spark."):
                raise click.BadParameter(f"{pair!r} is not spark.NAME=VALUE")
            given[name] = value
        return given

    return click.option(
        "--conf",
        "given",
        multiple=True,
        metavar="NAME=VALUE",
        callback=gather,
        help="A Spark setting, as for spark-submit: spark.master=local[4], spark.driver.memory=2g.",
    )(command)
