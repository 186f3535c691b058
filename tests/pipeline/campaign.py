"""``scripts/campaign pipeline``: runs of ``ingest`` that are killed at random moments.

Each round takes the snapshots of a small fleet in, in some portions; some tell events that others tell as well. Runs
are killed, Java and all, at random moments, and started again; the last one of a round comes to its end. Then all
tables must be those of one run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from .making import fleet
from .overlapping import told_again

#: Tables that tell of files and batches, and so of the portions in which files came.
OF_FILES = ("inventory", "origins", "rejects", "runs", "bronze", "unknown")
SETTINGS = ("spark.master=local[2]", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")


def command(landing: Path, tables: Path) -> list[str]:
    """One run, with few settings of its own."""
    words = [sys.executable, "-m", "postroom_pipeline", "ingest", "--in", str(landing), "--out", str(tables)]
    return [*words, *(word for setting in SETTINGS for word in ("--conf", setting))]


def run(landing: Path, tables: Path, killed_after_s: float | None = None) -> bool:
    """Whether a run came to its end before it was killed."""
    process = subprocess.Popen(
        command(landing, tables), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=killed_after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise SystemExit(f"a run failed, which a kill does not excuse:\n{said}")
    return True


def rows_of(tables: Path) -> dict[str, list[str]]:
    """All rows of the tables of devices, as sorted text."""
    found = {}
    with duckdb.connect() as base:
        base.execute("SET timezone = 'UTC'")
        for place in sorted(tables.iterdir()):
            if place.is_dir() and not place.name.startswith("_") and place.name not in OF_FILES:
                files = f"read_parquet('{place}/**/*.parquet', hive_partitioning = true)"
                found[place.name] = sorted(map(repr, base.execute(f"SELECT * FROM {files}").fetchall()))
    return found


def main() -> None:
    """Kill so many runs as ``--kills`` says; exit with 1 at the first difference."""
    parser = argparse.ArgumentParser(
        prog="scripts/campaign pipeline", description="Kills runs of the pipeline at random moments."
    )
    parser.add_argument("--kills", type=int, default=50, help="how many runs to kill [50]")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10_000, help="what chance begins with")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        fleet(work / "all", 4)
        told_again(work / "all")
        files = sorted((work / "all").rglob("*.jsonl.gz"))
        begun = time.monotonic()
        run(work / "all", work / "once")
        whole_s = time.monotonic() - begun
        wanted = rows_of(work / "once")
        killed = rounds = 0
        while killed < options.kills:
            rounds += 1
            landing, tables = work / "landing", work / "tables"
            landing.mkdir()
            chance.shuffle(files)
            while files:
                for _ in range(chance.randint(1, len(files))):
                    path = files.pop()
                    shutil.copyfile(path, landing / path.name)
                for _ in range(chance.randint(1, 3)):
                    killed += not run(landing, tables, chance.uniform(0, 1.1 * whole_s))
                print(f"round {rounds}: {killed} killed", flush=True)
            run(landing, tables)
            found = rows_of(tables)
            if found != wanted:
                names = [name for name in wanted if wanted[name] != found.get(name)]
                sys.exit(f"seed {options.seed}, round {rounds}: other rows in {', '.join(names)}")
            files = sorted((work / "all").rglob("*.jsonl.gz"))
            for directory in (landing, tables):
                shutil.rmtree(directory)
    print(f"{killed} runs killed in {rounds} rounds: all {len(wanted)} tables equal")


if __name__ == "__main__":
    main()
