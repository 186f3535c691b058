"""``python -m fleet``: make a fleet."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click

from .faults import FAULTS
from .plan import Plan, live


def _chosen(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(FAULTS) if text == "all" else tuple(name for name in text.split(",") if name and name != "none")
    for name in names:
        if name not in FAULTS:
            raise click.BadParameter(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Directory to make; not one that is there.")
@click.option("--devices", default=12, show_default=True, type=click.IntRange(1, 999), help="How many.")
@click.option("--days", default=2.0, show_default=True, type=click.FloatRange(0.02), help="Days that they live.")
@click.option("--seed", default=1, show_default=True, type=int, help="The same seed: the same devices and faults.")
@click.option(
    "--faults", default="all", show_default=True, callback=_chosen, help="Names with commas between, or none."
)
@click.option("--every", default=6.0, show_default=True, type=click.FloatRange(0.02), help="Hours between snapshots.")
@click.option(
    "--busy", default=1.0, show_default=True, type=click.FloatRange(0.1, 1000), help="Times as many messages."
)
@click.option("--speed", default=0.0, type=click.FloatRange(0), help="At most so many times real time. 0: no limit.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default=True, type=click.IntRange(1), help="Devices at a time."
)
def main(
    out: Path,
    devices: int,
    days: float,
    seed: int,
    faults: tuple[str, ...],
    every: float,
    busy: float,
    speed: float,
    jobs: int,
) -> None:
    """Make a fleet of simulated devices: real daemons, in driven time, with faults that are known.

    OUT/DEVICE/root is a device's directory, OUT/DEVICE/truth.json what is true of it, OUT/snapshots/DEVICE its
    snapshots. Each device that is done is told.
    """
    if out.exists():
        raise click.UsageError(f"--out {out}: it is there already")
    plan = Plan(devices, days * 24, every, seed, faults, busy, speed)
    dealt = plan.deal()
    left_out = sorted(set(faults) - {fault for names in dealt.values() for fault in names})
    if left_out:
        click.echo(f"fleet: no room for {', '.join(left_out)}: more devices have it", err=True)
    out.mkdir(parents=True)
    done = 0
    # Forked children would share what clients and daemons have open.
    with ProcessPoolExecutor(min(jobs, devices), multiprocessing.get_context("spawn")) as pool:
        works = {pool.submit(live, plan, name, names, out): name for name, names in dealt.items()}
        for work in as_completed(works):
            truth = work.result()
            done += 1
            published = sum(counts["published"] for counts in truth["queues"].values())
            told = ", ".join(dealt[truth["device"]]) or "healthy"
            text = f"{done}/{devices} {truth['device']}: {published} messages, {truth['seconds']:.1f} s, {told}"
            click.echo(text, err=True)
    summary = {"seed": seed, "days": days, "leftOut": left_out, "devices": dealt}
    (out / "fleet.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(prog_name="fleet"))
