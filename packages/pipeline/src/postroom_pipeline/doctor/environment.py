"""Checks what a run needs, without starting Spark: Java, Python, memory, directories."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from ..errors import EnvironmentProblem
from ..files import ARCHIVES, STAGED
from ..spark.java import find_java


class Verdict(StrEnum):
    """The result of a check."""

    GOOD = "ok"
    DOUBTFUL = "warn"
    BAD = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: the check, what it saw, and what to repair."""

    check: str
    verdict: Verdict
    seen: str
    mend: str = ""


def good(check: str, seen: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.GOOD, seen)


def doubtful(check: str, seen: str, mend: str) -> Finding:
    """It works, but something may fail later."""
    return Finding(check, Verdict.DOUBTFUL, seen, mend)


def bad(check: str, seen: str, mend: str) -> Finding:
    """It does not work."""
    return Finding(check, Verdict.BAD, seen, mend)


_GB: Final = 1 << 30
#: Memory beside the heap: the rest of Java, and Python.
_BESIDE_HEAP_BYTES: Final = _GB // 2
_LEAST_FREE_BYTES: Final = _GB
_FEW: Final = 3
_PYTHON_TIMEOUT_S: Final = 60
_WORKER_PROGRAM: Final = (
    "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], u.find_spec('pyarrow') is not None)"
)
_HEAP: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)


def check_java() -> Iterator[Finding]:
    """The Java that Spark would start."""
    try:
        java = find_java()
    except EnvironmentProblem as error:
        seen, _, mend = str(error).partition("; ")
        yield bad("java", seen, mend)
        return
    seen = f"Java {java.release}: {java.path} (by {java.chosen_by})"
    if java.is_supported:
        yield good("java", seen)
    else:
        mend = "Spark is tested with Java 17, 21 and 25: set JAVA_HOME to one of these if anything goes wrong"
        yield doubtful("java", seen, mend)


def check_python() -> Iterator[Finding]:
    """PySpark, the packages that it uses, and the Python of its workers."""
    installed = {name: _version(name) for name in ("pyspark", "pandas", "pyarrow")}
    pyspark, pandas = installed["pyspark"], installed["pandas"]
    if pyspark is None:
        yield bad("pyspark", "not installed", "pip install 'pyspark>=4.1,<5'")
    elif not (4, 1) <= _parts(pyspark) < (5,):
        yield bad("pyspark", f"version {pyspark}", "pip install 'pyspark>=4.1,<5'")
    else:
        yield good("pyspark", f"version {pyspark}")
    if pandas is not None and _parts(pandas) >= (3,):
        mend = "PySpark's own helpers need the release before: pip install 'pandas>=2.2,<3'"
        yield doubtful("pandas", f"version {pandas}", mend)
    yield from _check_workers(has_arrow=installed["pyarrow"] is not None)


def _check_workers(*, has_arrow: bool) -> Iterator[Finding]:
    """The Python workers of this machine; those of a cluster are checked when Spark runs."""
    ours = "{}.{}".format(*sys.version_info[:2])
    chosen = os.environ.get("PYSPARK_PYTHON", "")
    setting = f"PYSPARK_PYTHON is {chosen}" if chosen else "PYSPARK_PYTHON is not set, so spark-submit uses python3"
    mend = f"export PYSPARK_PYTHON={sys.executable}"
    # If it is not set, a run without spark-submit uses this Python; only spark-submit is in doubt.
    wrong = bad if chosen else doubtful
    try:
        command = [chosen or "python3", "-c", _WORKER_PROGRAM]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_PYTHON_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield wrong("workers", f"{setting}, which does not run ({error})", mend)
        return
    theirs, _, arrow = run.stdout.strip().partition(" ")
    if run.returncode or theirs != ours:
        yield wrong("workers", f"{setting}: Python {theirs or 'that fails'}, but this is Python {ours}", mend)
    elif has_arrow and arrow != "True":
        yield doubtful("workers", f"{setting}: Python {theirs} without pyarrow, which this Python has", mend)
    else:
        yield good("workers", f"{setting}: Python {theirs}")


def check_memory(heap: str) -> Iterator[Finding]:
    """Whether the driver's heap (in Spark's notation, ``1g``) fits into the free memory."""
    match = _HEAP.fullmatch(heap.strip())
    if not match:
        yield bad("memory", f"spark.driver.memory is {heap!r}", "write it as 2g or 1500m")
        return
    wanted = int(match[1]) << {"": 20, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]
    free = available_memory_bytes()
    seen = f"{free / _GB:.1f} GB free, the driver's heap may take {wanted / _GB:.1f} GB"
    if free < wanted + _BESIDE_HEAP_BYTES:
        mend = "end other programs, or set less: --conf spark.driver.memory=1g"
        yield doubtful("memory", seen, mend)
    else:
        yield good("memory", seen)


def available_memory_bytes() -> int:
    """How much memory this process can still get, in bytes: of the machine, or of its control group if that is less."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) << 10
    group = Path("/sys/fs/cgroup")
    try:
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no such group, or no limit ("max")
        pass
    return max(free, 0)


def check_scratch() -> Iterator[Finding]:
    """The directories in which Spark stores what does not fit into memory."""
    for name in os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(","):
        yield _check_place("scratch", Path(name), "set SPARK_LOCAL_DIRS to a directory with free space")


def check_tables(place: Path) -> Iterator[Finding]:
    """A local directory of tables."""
    above = next((path for path in [place, *place.absolute().parents] if path.exists()), Path("/"))
    if not above.is_dir():
        yield bad("out", f"{above} is not a directory", "choose another directory with --out")
        return
    yield _check_place("out", above, "choose a directory that you may write with --out", shown=place)


def _check_place(check: str, place: Path, mend: str, shown: Path | None = None) -> Finding:
    """Whether a directory can be written, tried by writing; and how much space is free."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"postroom")
            file.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return bad(check, f"{shown or place}: {error.strerror}", mend)
    seen = f"{shown or place} is writable, {free / _GB:.1f} GB free"
    return good(check, seen) if free >= _LEAST_FREE_BYTES else doubtful(check, seen, mend)


def check_landing(place: Path) -> Iterator[Finding]:
    """A local directory of snapshots: whether it can be read, and which of its files will not be read."""
    if not place.is_dir():
        yield bad("in", f"{place} is not a directory", "give the directory of the snapshots with --in")
        return
    finished, others, locked = 0, list[str](), list[str]()
    for directory, _, names in os.walk(place, onerror=lambda error: locked.append(str(error.filename))):
        for name in names:
            path = os.path.join(directory, name)
            if name.endswith((*STAGED, *ARCHIVES)):
                others.append(path)
            elif not name.startswith((".", "_")):
                finished += 1
                if not os.access(path, os.R_OK):
                    locked.append(path)
    seen = f"{place}: {finished:,} {'file' if finished == 1 else 'files'}"
    if finished:
        yield good("in", seen)
    else:
        yield doubtful("in", seen, "copy snapshots there; names that begin with a dot are not read")
    if locked:
        yield bad("in", f"cannot be read: {_some(locked)}", "give the pipeline's user permission to read them")
    yield from judge_leftovers(others)


def judge_leftovers(paths: list[str]) -> Iterator[Finding]:
    """What to do about files whose names end with ``STAGED`` or ``ARCHIVES``."""
    unfinished = [path for path in paths if path.endswith(STAGED)]
    archives = [path for path in paths if path.endswith(ARCHIVES)]
    if unfinished:
        mend = "these copies were not completed: copy them again, then delete these files"
        yield doubtful("in", f"left over from copying: {_some(unfinished)}", mend)
    if archives:
        yield doubtful("in", f"archives, which are not read: {_some(archives)}", "unpack them in this directory")


def _some(paths: list[str]) -> str:
    """A few of the paths, and how many more there are."""
    shown = ", ".join(sorted(paths)[:_FEW])
    return shown if len(paths) <= _FEW else f"{shown} and {len(paths) - _FEW:,} more"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
