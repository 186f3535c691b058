"""Errors of the pipeline: each has the exit status that the command ends with, and a text that says what to do."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar, Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_ENVIRONMENT: Final = 3
EXIT_INTERRUPTED: Final = 130
#: Errors may go around in a circle.
_CAUSES_LIMIT: Final = 20


class PipelineError(Exception):
    """Root of every error that the pipeline raises on purpose."""

    exit_status: ClassVar[int] = EXIT_FAILED


class UsageError(PipelineError):
    """What was asked for makes no sense; nothing was read or written."""

    exit_status = EXIT_USAGE


class EnvironmentProblem(PipelineError):
    """Something that the pipeline stands on is missing or unfit: Java, PySpark, a place, a right."""

    exit_status = EXIT_ENVIRONMENT


class Occupied(PipelineError):
    """Another run writes the same tables."""

    exit_status = EXIT_ENVIRONMENT


class SchemaMismatch(PipelineError):
    """A frame is not what its table holds; the text lists every difference."""


def said_by(error: BaseException) -> str:
    """The first line that says something of an error of Spark's or of Java's, and of what was at the bottom of it."""
    cause = getattr(error, "java_exception", None)
    said = _first_line(str(error) if cause is None else str(cause.toString())) or type(error).__name__
    root = _root_of(cause if cause is not None else getattr(error, "_origin", None))
    return said if root in said else f"{said}: {root}"


def _root_of(thrown: Any) -> str:
    """What an exception of Java's says that was thrown first; empty where none is known."""
    if thrown is None:
        return ""
    with suppress(Exception):  # Java may be gone
        for _ in range(_CAUSES_LIMIT):
            cause = thrown.getCause()
            if cause is None:
                break
            thrown = cause
        return _first_line(str(thrown.getMessage() or ""))
    return ""


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
