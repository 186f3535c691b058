"""What a run of Spark did, by its event log: how many jobs, stages and tasks, and how many bytes they moved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Bytes that a task reports, by the names of its metrics.
_BYTES: Final = {
    "read": ("Input Metrics", "Bytes Read"),
    "shuffled": ("Shuffle Write Metrics", "Shuffle Bytes Written"),
    "written": ("Output Metrics", "Bytes Written"),
}


@dataclass(slots=True)
class Work:
    """Counts of one run; sizes in bytes."""

    queries: int = 0
    jobs: int = 0
    stages: int = 0
    tasks: int = 0
    read: int = 0
    shuffled: int = 0
    written: int = 0
    spilled: int = 0

    @property
    def described(self) -> str:
        """One line."""
        sizes = ", ".join(
            f"{name} {getattr(self, name) / 1e6:,.0f} MB" for name in ("read", "shuffled", "written", "spilled")
        )
        counts = f"{self.jobs:,} jobs, {self.stages:,} stages, {self.tasks:,} tasks"
        return f"{self.queries:,} queries, {counts}; {sizes}"


def settings(directory: Path) -> list[str]:
    """The settings with which Spark writes its log into a directory, which must exist."""
    return ["spark.eventLog.enabled=true", "spark.eventLog.compress=false", f"spark.eventLog.dir={directory.as_uri()}"]


def work_in(directory: Path) -> Work:
    """The counts of all runs whose logs are in a directory."""
    work = Work()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("{"):
                    _add(work, json.loads(line))
    return work


def _add(work: Work, event: dict[str, Any]) -> None:
    kind = event["Event"]
    if kind == "SparkListenerJobStart":
        work.jobs += 1
    elif kind == "SparkListenerStageCompleted":
        work.stages += 1
    elif kind.endswith("SparkListenerSQLExecutionStart"):
        work.queries += 1
    elif kind == "SparkListenerTaskEnd":
        work.tasks += 1
        metrics = event.get("Task Metrics") or {}
        work.spilled += metrics.get("Disk Bytes Spilled", 0)
        for name, (group, metric) in _BYTES.items():
            setattr(work, name, getattr(work, name) + metrics.get(group, {}).get(metric, 0))
