"""Verification and repair of the closed root of a bench."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from postroom_daemon.cli import main
from postroom_daemon.maintenance.verify import Kind, Report, Verification
from postroom_daemon.maintenance.verify.repair import Repair, Repaired
from postroom_daemon.root.open_root import Sources
from tests.conformance.bench import Bench, CountedIds
from tests.daemon.populated_root import files_below

#: Findings that repair reports as losses.
LOSSES = {Kind.BODY_LOST, Kind.BODY_WRONG, Kind.EVENTS_LOST, Kind.MESSAGE_LOST, Kind.MESSAGE_MISSING}


def verified(bench: Bench, workspace: Path, **options: Any) -> Report:
    """Verify a stopped root, which must change nothing and leave nothing behind."""
    before = files_below(bench.path)
    report = Verification(bench.config, workspace, clock=bench.clocks.clock, **options).run()
    assert files_below(bench.path) == before
    assert not list(workspace.glob("postroom-*"))
    return report


def command(bench: Bench, *words: str) -> Result:
    """Run a command of ``postroomd`` on the root of a closed bench."""
    arguments = [words[0], "--root", str(bench.path), "--backend", bench.config.settings.backend, *words[1:]]
    return CliRunner().invoke(main, arguments)


def repair_of(bench: Bench, workspace: Path) -> Repair:
    """The repair of a closed bench, not begun yet."""
    sources = Sources(bench.files, bench.clocks.clock, CountedIds(bench.ids))
    return Repair(bench.config, workspace, sources=sources)


def repaired(bench: Bench, workspace: Path) -> Repaired:
    """Repair a closed bench. Nothing may be wrong afterwards, and each loss was a finding before."""
    result = repair_of(bench, workspace).apply()
    assert result.after is not None and result.done
    assert not result.after.faults, result.after.findings
    reported = {(finding.kind in LOSSES, finding.where) for finding in result.before.findings}
    for loss in filter(re.compile("is a dead letter now$|are lost: taken note of$").search, result.done):
        assert (True, where_of(loss)) in reported, f"{loss} was no finding before"
    return result


def where_of(loss: str) -> str:
    """The message, or the range of events, that a line of a repair reports as lost."""
    events = re.match(r"events (\d+) to (\d+) ", loss)
    return f"{events[1]}-{events[2]}" if events else loss.rpartition(": nobody")[0]
