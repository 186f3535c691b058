"""Looks at what the pipeline stands on, without starting Spark: Java, Python, memory, places."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from .errors import EnvironmentProblem
from .findings import Finding, bad, doubtful, good
from .java import find_java

#: Endings of files that somebody did not finish copying, and of files that hold others.
UNFINISHED: Final = (".part", ".tmp", "._COPYING_")
ARCHIVES: Final = (".tar", ".tgz", ".tar.gz", ".zip")
_GB: Final = 1 << 30
#: Beside the heap: the rest of Java, and Python.
_BESIDE_HEAP_BYTES: Final = _GB // 2
_LEAST_FREE_BYTES: Final = _GB
_FEW: Final = 3
_PYTHON_TIMEOUT_S: Final = 60
_WORKER_PROGRAM: Final = (
    "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], u.find_spec('pyarrow') is not None)"
)
_HEAP: Final = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)


def look_at_java() -> Iterator[Finding]:
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
        mend = "Spark is tested with Java 17, 21 and 25: let JAVA_HOME name one of these if anything goes wrong"
        yield doubtful("java", seen, mend)


def look_at_python() -> Iterator[Finding]:
    """PySpark, what it works with, and the Python that its workers run."""
    installed = {name: _version(name) for name in ("pyspark", "pandas", "pyarrow")}
    pyspark, pandas = installed["pyspark"], installed["pandas"]
    if pyspark is None:
        yield bad("pyspark", "not installed", "pip install 'pyspark>=4.1,<5'")
    elif not (4, 1) <= _parts(pyspark) < (5,):
        yield bad("pyspark", f"version {pyspark}", "pip install 'pyspark>=4.1,<5'")
    else:
        yield good("pyspark", f"version {pyspark}")
    if pandas is not None and _parts(pandas) >= (3,):
        mend = "PySpark's own helpers want the one before: pip install 'pandas>=2.2,<3'"
        yield doubtful("pandas", f"version {pandas}", mend)
    yield from _look_at_workers(has_arrow=installed["pyarrow"] is not None)


def _look_at_workers(*, has_arrow: bool) -> Iterator[Finding]:
    """Python workers of this machine; those of a cluster are seen when Spark runs."""
    ours = "{}.{}".format(*sys.version_info[:2])
    chosen = os.environ.get("PYSPARK_PYTHON", "")
    told = f"PYSPARK_PYTHON is {chosen}" if chosen else "PYSPARK_PYTHON is not set: spark-submit takes python3"
    mend = f"export PYSPARK_PYTHON={sys.executable}"
    # Where it is not set, a run without spark-submit takes this Python: then only the other way is in doubt.
    wrong = bad if chosen else doubtful
    try:
        command = [chosen or "python3", "-c", _WORKER_PROGRAM]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_PYTHON_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield wrong("workers", f"{told}, which does not run ({error})", mend)
        return
    theirs, _, arrow = run.stdout.strip().partition(" ")
    if run.returncode or theirs != ours:
        yield wrong("workers", f"{told}: Python {theirs or 'that fails'}, and this is Python {ours}", mend)
    elif has_arrow and arrow != "True":
        yield doubtful("workers", f"{told}: Python {theirs} without pyarrow, which is here", mend)
    else:
        yield good("workers", f"{told}: Python {theirs}")


def look_at_memory(heap: str) -> Iterator[Finding]:
    """Whether the driver's heap (as Spark is told it, ``1g``) fits into what is free."""
    found = _HEAP.fullmatch(heap.strip())
    if not found:
        yield bad("memory", f"spark.driver.memory is {heap!r}", "write it as 2g or 1500m")
        return
    wanted = int(found[1]) << {"": 20, "k": 10, "m": 20, "g": 30, "t": 40}[found[2].lower()]
    free = available_memory_bytes()
    seen = f"{free / _GB:.1f} GB free, the driver's heap may take {wanted / _GB:.1f} GB"
    if free < wanted + _BESIDE_HEAP_BYTES:
        mend = "end other programs, or say less: --conf spark.driver.memory=1g"
        yield doubtful("memory", seen, mend)
    else:
        yield good("memory", seen)


def available_memory_bytes() -> int:
    """What this process could still get: of the machine, or of its control group where that is less."""
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) << 10
    group = Path("/sys/fs/cgroup")
    try:
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no such group, or no limit ("max")
        pass
    return max(free, 0)


def look_at_scratch() -> Iterator[Finding]:
    """Where Spark puts what does not fit into memory."""
    for name in os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(","):
        yield _look_at_place("scratch", Path(name), "let SPARK_LOCAL_DIRS name a place with room")


def look_at_tables(place: Path) -> Iterator[Finding]:
    """A local place of tables."""
    above = next((path for path in [place, *place.absolute().parents] if path.exists()), Path("/"))
    if not above.is_dir():
        yield bad("out", f"{above} is no directory", "name another place by --out")
        return
    yield _look_at_place("out", above, "name a place that you may write by --out", shown=place)


def _look_at_place(check: str, place: Path, mend: str, shown: Path | None = None) -> Finding:
    """Whether a directory can be written, by writing; and how much room there is."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"postroom")
            file.flush()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return bad(check, f"{shown or place}: {error.strerror}", mend)
    seen = f"{shown or place} can be written, {free / _GB:.1f} GB free"
    return good(check, seen) if free >= _LEAST_FREE_BYTES else doubtful(check, seen, mend)


def look_at_landing(place: Path) -> Iterator[Finding]:
    """A local directory of snapshots: that it can be read, and what in it will not be."""
    if not place.is_dir():
        yield bad("in", f"{place} is no directory", "name the directory of the snapshots by --in")
        return
    finished, others, locked = 0, list[str](), list[str]()
    for directory, _, names in os.walk(place, onerror=lambda error: locked.append(str(error.filename))):
        for name in names:
            path = os.path.join(directory, name)
            if name.endswith((*UNFINISHED, *ARCHIVES)):
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
        yield bad("in", f"cannot be read: {_some(locked)}", "give the user of the pipeline the right to read them")
    yield from judge_leftovers(others)


def judge_leftovers(paths: list[str]) -> Iterator[Finding]:
    """What to do about files with the endings of ``UNFINISHED`` and ``ARCHIVES``."""
    unfinished = [path for path in paths if path.endswith(UNFINISHED)]
    archives = [path for path in paths if path.endswith(ARCHIVES)]
    if unfinished:
        mend = "these copies never ended: copy again, then delete them"
        yield doubtful("in", f"left over from copying: {_some(unfinished)}", mend)
    if archives:
        yield doubtful("in", f"archives, which are refused: {_some(archives)}", "unpack them beside the others")


def _some(paths: list[str]) -> str:
    """A few of the paths, and how many there are."""
    shown = ", ".join(sorted(paths)[:_FEW])
    return shown if len(paths) <= _FEW else f"{shown} and {len(paths) - _FEW:,} more"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
