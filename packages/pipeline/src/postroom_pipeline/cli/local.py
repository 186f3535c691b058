"""The commands that need neither Java nor Spark: ``bundle`` and ``validate``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from ..errors import EXIT_FAILED
from ..local.bundle import Bundler, Counts, Made, Rejected
from ..local.bundle_writer import alone_in
from ..local.validate import files_of
from ..local.validate import validate as judgements
from .options import Size

_files = click.argument("places", nargs=-1, required=True, metavar="FILES...", type=click.Path(path_type=Path))


@click.command()
@_files
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each snapshot.")
def validate(places: tuple[Path, ...], as_json: bool) -> None:
    """Check files of snapshots, or all files of directories, and print one line for each snapshot. Needs neither Java
    nor Spark.

    Exits with 1 if a snapshot is not complete and intact, or if there is none.
    """
    checked = bad = 0
    for judgement in judgements(files_of(places)):
        checked += 1
        bad += bool(judgement.reason)
        click.echo(json.dumps(asdict(judgement)) if as_json else judgement.described)
    if not checked:
        click.echo("postroom-pipeline: there is no snapshot", err=True)
    sys.exit(EXIT_FAILED if bad or not checked else 0)


@click.command()
@_files
@click.option(
    "--out",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write the bundles; may be one of the directories that are read.",
)
@click.option(
    "--size",
    default="32MB",
    show_default=True,
    metavar="SIZE",
    type=Size("1MB", "128MB"),
    help="Approximate size of a bundle; 16MB to 64MB are good values.",
)
@click.option(
    "--remove-originals", is_flag=True, help="Delete a file once all of its snapshots are stored durably in bundles."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each bundle and each rejected file.")
def bundle(places: tuple[Path, ...], folder: Path, size: int, remove_originals: bool, as_json: bool) -> None:
    """Put the snapshots of files, or of all files of directories, into a few large files. Needs neither Java nor Spark.

    Each snapshot is checked and goes into one bundle, once; bundles already in --out count. A snapshot that is not
    complete and intact is reported with the reason, goes into no bundle, and its file stays. ingest and follow read
    bundles fastest. A bundle gets its name only when it is complete and durable.

    Exits with 1 if anything was rejected, or if there is no file.
    """

    def show(event: Made | Rejected) -> None:
        click.echo(json.dumps(asdict(event)) if as_json else _described(event))

    with alone_in(folder):
        bundler = Bundler(folder, size, show, remove_originals=remove_originals)
        bundler.run(files_of(places))
    click.echo(f"postroom-pipeline: {_summary(bundler.counts)}", err=True)
    sys.exit(0 if bundler.counts.files and not bundler.counts.rejected else EXIT_FAILED)


def _described(event: Made | Rejected) -> str:
    """One line for people."""
    if isinstance(event, Made):
        return f"made  {event.bundle}  {event.snapshots:,} snapshots, {event.bytes:,} bytes"
    whose = f"{event.device} {event.snapshot}".strip() or "-"
    return f"bad   {event.file}  {whose}  {event.reason}: {event.detail}"


def _summary(counts: Counts) -> str:
    """The result of a run, in one line."""
    numbers = {"files": counts.files, "snapshots": counts.snapshots, "bundles": counts.bundles}
    numbers |= {"bundled before": counts.already_bundled, "rejected": counts.rejected, "files removed": counts.removed}
    return ", ".join(f"{name}: {number:,}" for name, number in numbers.items())
