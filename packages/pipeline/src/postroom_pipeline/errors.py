"""Errors of the pipeline: each has the exit status that the command ends with, and a text that says what to do."""

from __future__ import annotations

from typing import ClassVar, Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_ENVIRONMENT: Final = 3
EXIT_INTERRUPTED: Final = 130


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
    """The first line that says something of an error of Spark's or of Java's."""
    cause = getattr(error, "java_exception", None)
    text = str(error) if cause is None else str(cause.toString())
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
