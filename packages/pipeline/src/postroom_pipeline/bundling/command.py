"""The command ``bundle``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from ..errors import EXIT_FAILED
from ..options import Size
from ..validate import files_of
from .job import Bundler, Counts, Made, Refused
from .writer import alone_in


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="FILES...", type=click.Path(path_type=Path))
@click.option(
    "--out",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the bundles go; may be one of the directories that are read.",
)
@click.option(
    "--size",
    default="32MB",
    show_default=True,
    metavar="SIZE",
    type=Size("1MB", "128MB"),
    help="About as much goes into a bundle: 16MB to 64MB are good.",
)
@click.option("--remove-originals", is_flag=True, help="Delete a file once all its snapshots are in durable bundles.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each bundle and each refusal.")
def bundle(places: tuple[Path, ...], folder: Path, size: int, remove_originals: bool, as_json: bool) -> None:
    """Put the snapshots of files, or of all files of directories, into few large ones. Needs neither Java nor Spark.

    Each snapshot is checked, and is in one bundle, once: what --out holds already counts. What is not whole is told
    with the reason, is in no bundle, and stays where it is. Bundles are what ingest and follow read fastest; one is
    there under its name only when it is whole and durable.

    Ends with 1 where something was refused, or nothing was found.
    """

    def tell(event: Made | Refused) -> None:
        click.echo(json.dumps(asdict(event)) if as_json else described(event))

    with alone_in(folder):
        bundler = Bundler(folder, size, tell, remove_originals=remove_originals)
        bundler.run(files_of(places))
    click.echo(f"postroom-pipeline: {summary(bundler.counts)}", err=True)
    sys.exit(0 if bundler.counts.files and not bundler.counts.refused else EXIT_FAILED)


def described(event: Made | Refused) -> str:
    """One line for people."""
    if isinstance(event, Made):
        return f"made  {event.bundle}  {event.snapshots:,} snapshots, {event.bytes:,} bytes"
    whose = f"{event.device} {event.snapshot}".strip() or "-"
    return f"bad   {event.file}  {whose}  {event.reason}: {event.detail}"


def summary(counts: Counts) -> str:
    """What a run came to."""
    told = {"files": counts.files, "snapshots": counts.snapshots, "bundles": counts.bundles}
    told |= {"bundled before": counts.again, "refused": counts.refused, "files removed": counts.removed}
    return ", ".join(f"{name}: {number:,}" for name, number in told.items())
