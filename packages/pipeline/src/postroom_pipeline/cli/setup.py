"""The commands that prepare a run: ``doctor`` and ``package``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from ..doctor.checks import CHECKS, Wanted, examine
from ..doctor.environment import Verdict
from ..errors import EXIT_ENVIRONMENT, UsageError
from ..package import write_package
from .options import spark_options


@click.command()
@click.option("--in", "landing", default="", metavar="DIR", help="The directory of the snapshots; checked if given.")
@click.option("--out", "tables", default="", metavar="DIR", help="The directory of the tables; checked if given.")
@click.option("--only", multiple=True, type=click.Choice(CHECKS), help="Run only this check; can be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each finding.")
@spark_options
def doctor(landing: str, tables: str, only: tuple[str, ...], as_json: bool, given: dict[str, str]) -> None:
    """Check everything that a run needs, and say what to repair.

    Spark is started only with --only spark, by spark-submit, or if a directory is not on this machine.

    Exits with 3 if a check fails; warnings alone are no failure.
    """
    for name, value in (("in", landing), ("out", tables)):
        if name in only and not value:
            raise UsageError(f"--only {name} needs --{name} DIR")
    is_fit = True
    for finding in examine(Wanted(landing, tables, given), only):
        is_fit = is_fit and finding.verdict is not Verdict.BAD
        if as_json:
            click.echo(json.dumps(asdict(finding)))
        else:
            click.echo(f"{finding.verdict:<4}  {finding.check:<9}  {finding.seen}")
            if finding.mend:
                click.echo(f"      {'':<9}  -> {finding.mend}")
    sys.exit(0 if is_fit else EXIT_ENVIRONMENT)


@click.command()
@click.option(
    "--out",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write the two files.",
)
def package(directory: Path) -> None:
    """Write postroom_pipeline.zip and run.py, for spark-submit."""
    archive, entry = write_package(directory)
    click.echo(f"spark-submit --master MASTER --py-files {archive} {entry} COMMAND ...")
