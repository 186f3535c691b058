"""``postroomd verify`` and ``postroomd repair``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .options import Source, configured, counted, json_option

if TYPE_CHECKING:
    from ..maintenance.verify import Finding, Report

#: Exit code when something is wrong with the root.
FAULTS_FOUND: Final = 3

_workspace_option = click.option(
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Directory with space for a copy of the database and an index of the journal (default TMPDIR, else /var/tmp).",
)


@click.command()
@click.option("--deep", is_flag=True, help="Also let SQLite check every page of its database, as `repair` does.")
@json_option
@_workspace_option
@configured
def verify(source: Source, deep: bool, as_json: bool, workspace: Path | None) -> None:
    """Look for faults in DIR, and change nothing.

    Checks the journal, the store, and one against the other: every message's state, body and history, the counts of
    queues, files in the wrong place. A running daemon is asked for its messages, and keeps working.

    Exit codes: 0 no faults, 1 not verified, or not a root, 2 wrong usage or configuration, 3 faults found.
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
@click.option("--apply", "do_apply", is_flag=True, help="Apply the plan; without this, only print it.")
@json_option
@_workspace_option
@configured
def repair(source: Source, do_apply: bool, as_json: bool, workspace: Path | None) -> None:
    """Repair the faults that `verify` finds. Stop the daemon first.

    Without --apply, prints a plan and changes nothing. Never use --apply before you have read the plan: it also accepts
    the loss of events. The journal wins over the store. What is taken out goes to DIR/quarantine; nothing is deleted. A
    root without faults is not touched. The command may be killed at any moment, and run again.

    Exit codes: 0 no faults, or none left, 1 not repaired, 2 wrong usage or configuration, 3 faults found, or left.
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
            click.echo("verified again:")
            for finding in result.after.findings:
                _show(finding)
        click.echo(_summary(last))
        if last.faults and not do_apply:
            click.echo("nothing was changed: postroomd repair --apply would do the above")
            if last.counts[Kind.NOT_COMPARED]:
                click.echo("and repair what it finds once the journal is in order, which cannot be listed before")
    raise SystemExit(FAULTS_FOUND if last.faults else 0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log: findings report what it would say."""
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
    """A text without line breaks and control characters."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _summary(report: Report) -> str:
    state = "running" if report.running else "stopped"
    journal = report.journal
    messages, events = counted(report.messages, "message"), counted(journal["events"], "event")
    lines = [
        f"{report.root}: {report.backend}, {state}, as of event {report.as_of_event}",
        f"{messages} in {counted(report.queues, 'queue')}; {report.only_in_store} of them only in the store",
        f"{events} in {counted(journal['segments'], 'segment')} of the journal, the first is {journal['firstEvent']}",
    ]
    if report.quarantine["files"]:
        lines.append(f"{counted(report.quarantine['files'], 'file')}, {report.quarantine['bytes']} bytes in quarantine")
    notes = sum(report.counts.values()) - report.faults
    empty = "" if journal["events"] or report.messages else "; there are no events and no messages"
    lines.append(f"{report.faults} faults, {notes} notes" if report.counts else f"no faults{empty}")
    return "\n".join(lines)
