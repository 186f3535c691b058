"""Errors of the pipeline: each has the exit status of the command, and a text that says what to do."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar, Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_ENVIRONMENT: Final = 3
EXIT_INTERRUPTED: Final = 130
#: Chains of causes may be circular.
_CAUSES_LIMIT: Final = 20


class PipelineError(Exception):
    """Root of every error that the pipeline raises on purpose."""

    exit_status: ClassVar[int] = EXIT_FAILED


class UsageError(PipelineError):
    """The arguments make no sense; nothing was read or written."""

    exit_status = EXIT_USAGE


class EnvironmentProblem(PipelineError):
    """Something that the pipeline needs is missing or unfit: Java, PySpark, a directory, a permission."""

    exit_status = EXIT_ENVIRONMENT


class Occupied(PipelineError):
    """Another run writes to the same place."""

    exit_status = EXIT_ENVIRONMENT


class SchemaMismatch(PipelineError):
    """A data frame does not have the columns of its table; the text lists every difference."""


def one_line(error: BaseException) -> str:
    """An error in one line. Of an error of Spark or Java: its first line, and that of its root cause."""
    cause = getattr(error, "java_exception", None)
    text = _first_line(str(error) if cause is None else str(cause.toString())) or type(error).__name__
    root = _root_cause(cause if cause is not None else getattr(error, "_origin", None))
    return text if root in text else f"{text}: {root}"


def _root_cause(thrown: Any) -> str:
    """The message of the exception that Java threw first; empty if unknown."""
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
