"""``python -m bench`` from the root of the checkout; see ``scripts/bench`` and ``docs/performance.md``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

from . import (
    breakdown,
    cluster,
    console,
    export,
    fair,
    floor,
    logs,
    machine,
    mailbox,
    pipeline,
    plots,
    questions,
    scaling,
    shapes,
    takeover,
)
from .box import NoBox
from .environment import ROOT, CannotInstall
from .figures import Report
from .gateway import contest as gateway
from .stores import contest

PARTS = (
    "cluster",
    "console",
    "export",
    "fair",
    "gateway",
    "logs",
    "mailbox",
    "pipeline",
    "questions",
    "scaling",
    "shapes",
    "stages",
    "stores",
    "takeover",
)
#: Parts that can be run only to see whether they work.
WITH_TINY = ("gateway", "scaling", "stages", "stores")
#: Parts that can be drawn.
WITH_PLOTS = ("pipeline", "scaling", "shapes")


class Interrupted(BaseException):
    """A signal, or the end of the time limit of a run. No ``Exception``: the broker may run in this process, and would
    take that for an error of a request."""


def main() -> int:
    """Measure, print, clean up. 0 when everything was measured, whether or not within budget; 1 when not."""
    options = _arguments()
    size = {"quick": mailbox.QUICK, "full": mailbox.FULL}.get(options.size, mailbox.NORMAL)
    contest_size = {"tiny": contest.TINY, "quick": contest.QUICK, "full": contest.FULL}.get(
        options.size, contest.NORMAL
    )
    console_size = {"quick": console.QUICK, "full": console.FULL}.get(options.size, console.NORMAL)
    export_size = {"quick": export.QUICK, "full": export.FULL}.get(options.size, export.NORMAL)
    pipeline_size = {"quick": pipeline.QUICK, "full": pipeline.FULL}.get(options.size, pipeline.NORMAL)
    gateway_size = {"tiny": gateway.TINY, "quick": gateway.QUICK}.get(options.size, gateway.NORMAL)
    fair_size = fair.QUICK if options.size == "quick" else fair.NORMAL
    limits = {"stores": contest_size.limit_s, "console": console_size.limit_s, "export": export_size.limit_s}
    limits["pipeline"] = limits["shapes"] = pipeline_size.limit_s
    limits["fair"] = fair_size.limit_s
    limits["gateway"] = gateway_size.limit_s
    scaling_size = {"tiny": scaling.TINY, "quick": scaling.QUICK}.get(options.size, scaling.NORMAL)
    takeover_size = takeover.QUICK if options.size == "quick" else takeover.NORMAL
    limits["takeover"] = takeover_size.limit_s
    stages_size = {"tiny": breakdown.TINY, "quick": breakdown.QUICK}.get(options.size, breakdown.NORMAL)
    cluster_size = cluster.QUICK if options.size == "quick" else cluster.NORMAL
    limits["cluster"] = cluster_size.limit_s
    limits["stages"] = stages_size.limit_s
    limits["scaling"] = scaling_size.limit_s
    _end_in_time(limits.get(options.what, size.limit_s))
    options.dir.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="bench-", dir=options.dir))
    started = time.monotonic()
    try:
        conditions = machine.describe(place) | {"size": options.size}
        print(machine.text(conditions), flush=True)
        for caution in machine.cautions(place, conditions["fileSystem"]):
            print(f"caution   {caution}", flush=True)
        report = Report(conditions)
        times = machine.cpu_times()
        try:
            if options.what == "stages":
                breakdown.measure(report, stages_size, place / "stages")
            elif options.what == "questions":
                _report_questions(report, place)
            elif options.what == "console":
                console.measure(report, console_size, place)
            elif options.what == "export":
                export.measure(report, export_size, place)
            elif options.what == "pipeline":
                curve = pipeline.measure(report, pipeline_size, place, options.dir)
                _draw(report, {"pipeline-size": plots.specification(curve)}, options.plots)
            elif options.what == "shapes":
                fleet = pipeline_size.fleets[-1 if options.size == "quick" else 1]
                of_even = shapes.measure(report, *fleet, place, options.dir)
                _draw(report, {"pipeline-shapes": plots.bars(shapes.TITLE, of_even)}, options.plots)
            elif options.what == "fair":
                fair.measure(report, fair_size, place, floor.build(place))
            elif options.what == "gateway":
                with_peers = options.size != "tiny"
                gateway.measure(report, gateway_size, place, floor.build(place), with_peers)
            elif options.what == "scaling":
                _report_scaling(report, scaling_size, place, options.plots, options.box)
            elif options.what == "cluster":
                cluster.measure(report, cluster_size, place / "cluster")
            elif options.what == "takeover":
                takeover.measure(report, takeover_size, place / "takeover")
            elif options.what == "logs":
                logs.measure(report, 100_000 if options.size == "quick" else 1_000_000, place)
            elif options.what == "stores":
                contest.measure(report, contest_size, place, with_peers=options.size != "tiny")
            else:
                mailbox.measure(report, size, place, floor.build(place))
        except (Interrupted, KeyboardInterrupt) as reason:
            print(f"\nended before all was measured: {str(reason) or 'interrupted'}", file=sys.stderr)
            return 1
        finally:
            conditions["seconds"] = round(time.monotonic() - started)
            conditions["loadAverageAtEnd"] = machine.load_average()
            conditions["stolenPercent"] = machine.stolen_percent(times, machine.cpu_times())
            print(f"\n{report.summary()}\n{machine.text_at_end(conditions)}")
            if options.json:
                report.write(options.json)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


def _report_scaling(report: Report, size: scaling.Size, place: Path, plots_to: Path | None, in_box: bool) -> None:
    try:
        with scaling.starting(in_box) as start:
            curves = scaling.measure(report, size, place, floor.build(place), start)
    except NoBox as lacking:
        report.missing("the daemon in a small box", str(lacking))
        return
    suffix = "-box" if in_box else ""
    _draw(report, {f"scaling-{curve.name}{suffix}": plots.specification(curve) for curve in curves}, plots_to)


def _draw(report: Report, specifications: dict[str, dict[str, Any]], directory: Path | None) -> None:
    if directory is None:
        return
    try:
        written = plots.draw(specifications, directory)
        print(f"\nplots: {', '.join(map(str, written))}", flush=True)
    except CannotInstall as lacking:
        report.missing("plots", str(lacking))


def _report_questions(report: Report, place: Path) -> None:
    report.section("The longest time that a question holds the loop: CPU, and by the clock")
    for held in questions.measure(place / "questions"):
        report.add(held.question, held.cpu_ms, "ms")
        report.add(f"{held.question}, by the clock", held.wall_ms, "ms")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures the product; see docs/performance.md.")
    parser.add_argument("what", choices=PARTS, help="what to measure")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--tiny", dest="size", action="store_const", const="tiny", help=f"only whether it works: {', '.join(WITH_TINY)}"
    )
    sizes.add_argument("--quick", dest="size", action="store_const", const="quick", help="a minute or two")
    sizes.add_argument("--full", dest="size", action="store_const", const="full", help="a backlog of 1,000,000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    parser.add_argument(
        "--dir", type=Path, default=ROOT / "run", help="where the data lies while it runs (default: run/)"
    )
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help=f"draw the figures there, as SVG: {', '.join(WITH_PLOTS)}"
    )
    parser.add_argument(
        "--box", action="store_true", help="scaling: the daemon has 128 MB of memory and half a core (root, or systemd)"
    )
    parser.set_defaults(size="normal")
    options = parser.parse_args()
    if options.size == "tiny" and options.what not in WITH_TINY:
        parser.error(f"--tiny is for {', '.join(WITH_TINY)}")
    if options.plots and options.what not in WITH_PLOTS:
        parser.error(f"--plots is for {', '.join(WITH_PLOTS)}")
    if options.box and options.what != "scaling":
        parser.error("--box is for scaling")
    return options


def _end_in_time(limit_s: int) -> None:
    """Let signals and the time limit end the run by an exception, so that everything is cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        why = f"{limit_s} s are over" if number == signal.SIGALRM else signal.Signals(number).name
        raise Interrupted(why)

    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    signal.alarm(limit_s)


if __name__ == "__main__":
    raise SystemExit(main())
