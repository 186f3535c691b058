"""``postroomd verify`` and ``postroomd repair``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .options import Source, configured, json_option

if TYPE_CHECKING:
    from ..maintenance.verify import Finding, Report

#: Exit code when something is wrong with the root.
FAULTS_FOUND: Final = 3

_workspace_option = click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Directory with room for a copy of the database and an index of the journal (default TMPDIR, else /var/tmp).",
)


@click.command()
@click.option("--deep", is_flag=True, help="Let SQLite check all pages of its database as well, as `repair` does.")
@json_option
@_workspace_option
@configured
def verify(source: Source, deep: bool, as_json: bool, workspace: Path | None) -> None:
    """Look for all that is wrong with DIR, and change nothing.

    Journal, store, and one against the other: every message's state, body and history, the counts of queues, files in
    the wrong place. A running daemon is asked for its messages, and works on.

    Exit codes: 0 sound, 1 could not be verified or is no root, 2 wrong use or configuration, 3 faults found.
    """
    from ..maintenance.verify import Verification

    config = source.load()
    with _quiet():
        report = Verification(config, workspace, deep, (lambda finding: None) if as_json else _show).run()
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        click.echo(_summary(report))
    raise SystemExit(FAULTS_FOUND if report.faults else 0)


@click.command()
@click.option("--apply", "do_apply", is_flag=True, help="Do it; without this, only say what would be done.")
@json_option
@_workspace_option
@configured
def repair(source: Source, do_apply: bool, as_json: bool, workspace: Path | None) -> None:
    """Mend what `verify` finds, while no daemon runs on DIR.

    The journal wins over the store. What is taken out goes to DIR/quarantine; nothing is deleted. A sound root is not
    touched. It may be killed at any moment, and begun again.

    Exit codes: 0 sound, or sound again, 1 not repaired, 2 wrong use or configuration, 3 faults are there, or are left.
    """
    from ..maintenance.verify import Kind
    from ..maintenance.verify.repair import Repair

    config = source.load()
    on_finding = (lambda finding: None) if as_json else _show
    work = Repair(config, workspace, on_finding, (lambda text: None) if as_json else _say)
    with _quiet():
        result = work.apply() if do_apply else work.plan()
    last = result.after or result.before
    if as_json:
        after = result.after.to_json() if result.after else None
        shown: dict[str, Any] = {"ok": not last.faults, "before": result.before.to_json(), "done": result.done}
        click.echo(json.dumps(shown | {"after": after}))
    else:
        if result.after:
            click.echo("looked at again:")
            for finding in result.after.findings:
                _show(finding)
        click.echo(_summary(last))
        if last.faults and not do_apply:
            click.echo("nothing was changed: postroomd repair --apply does what is said above")
            if last.counts[Kind.NOT_COMPARED]:
                click.echo("and mends what it finds once the journal is in order, which cannot be known before")
    raise SystemExit(FAULTS_FOUND if last.faults else 0)


@contextmanager
def _quiet() -> Iterator[None]:
    """What the daemon's parts would log is told by findings."""
    logger = logging.getLogger("postroom_daemon")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _show(finding: Finding) -> None:
    rule = finding.rule
    click.echo(
        f"{'FAULT' if finding.is_fault else 'note'} {finding.kind} {_plain(finding.where)}: {_plain(finding.text)}"
    )
    click.echo(f"    {rule.meaning}; repair: {rule.repair or 'cannot help'}")


def _say(text: str) -> None:
    click.echo(f"done: {_plain(text)}")


def _plain(text: str) -> str:
    """A text of which nothing can be taken for another line, or moves the cursor."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _summary(report: Report) -> str:
    state = "running" if report.running else "stopped"
    journal = report.journal
    lines = [
        f"{report.root}: {report.backend}, {state}, as of event {report.as_of_event}",
        f"{report.messages} messages in {report.queues} queues; of {report.only_in_store} only the store tells",
        f"{journal['events']} events in {journal['segments']} files of the journal, from {journal['firstEvent']} on",
    ]
    if report.quarantine["files"]:
        lines.append(f"{report.quarantine['files']} files, {report.quarantine['bytes']} bytes in quarantine")
    notes = sum(report.counts.values()) - report.faults
    empty = "" if journal["events"] or report.messages else ", nor any event or message"
    lines.append(f"{report.faults} faults, {notes} notes" if report.counts else f"sound: nothing was found{empty}")
    return "\n".join(lines)
