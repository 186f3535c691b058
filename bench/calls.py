"""Python calls and allocations of the daemon in a publish, consume and ack, and the lines that take the CPU.

Calls are counted by ``sys.setprofile``: those of functions and methods written in Python (a generator that goes on
counts as a call), and those of functions written in C. Allocations are counted by ``allocations.c``: each block that is
requested of Python's allocators for memory and objects; what the interpreter takes from its lists of free objects
(small tuples, floats, frames) is not among them. Lines are sampled at the ticks of the process's CPU time
(``ITIMER_PROF``): time in C, system calls included, is that of the line that called. A sample is taken where the
interpreter next looks for signals, so that the first line of a function also stands for what is before its call.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from .inside import COMMANDS, Inside

_SOURCE: Final = Path(__file__).with_name("allocations.c")
_COMPILE_TIMEOUT_S: Final = 60
#: The kernel samples at its ticks, which may be fewer.
_SAMPLE_S: Final = 0.001


@dataclass(slots=True)
class Counts:
    """What one message takes."""

    python_calls: float = 0.0
    c_calls: float = 0.0
    allocations: float | None = None
    allocated_bytes: float | None = None


def count(place: Path, size: int, cycles: int) -> dict[str, Counts]:
    """For each command the calls and allocations per request in ``cycles`` groups of ``size``."""
    counted = {command: Counts() for command in COMMANDS}
    with Inside(place / "counted", size) as inside:
        inside.cycle(_nothing_around)  # makes the response directories and the queue
        requests = size * cycles
        calls: dict[str, Counter[str]] = {command: Counter() for command in COMMANDS}
        for _ in range(cycles):
            inside.cycle(lambda command: _profiled(calls[command]))
        for command, kinds in calls.items():
            counted[command].python_calls = kinds["call"] / requests
            counted[command].c_calls = kinds["c_call"] / requests
        library = _compile(place)
        if library:
            blocks: dict[str, Counter[str]] = {command: Counter() for command in COMMANDS}
            for _ in range(cycles):
                inside.cycle(lambda command: _allocating(library, blocks[command]))
            for command, found in blocks.items():
                counted[command].allocations = found["blocks"] / requests
                counted[command].allocated_bytes = found["bytes"] / requests
    return counted


@contextmanager
def _nothing_around(command: str) -> Iterator[None]:
    yield


@contextmanager
def _profiled(kinds: Counter[str]) -> Iterator[None]:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        kinds[event] += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextmanager
def _allocating(library: ctypes.CDLL, found: Counter[str]) -> Iterator[None]:
    library.start()
    try:
        yield
    finally:
        library.stop()
        found["blocks"] += library.blocks()
        found["bytes"] += library.bytes()


def _compile(place: Path) -> ctypes.CDLL | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    target = place / "allocations.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, _SOURCE], check=True, timeout=_COMPILE_TIMEOUT_S)
    library = ctypes.CDLL(str(target))
    library.blocks.restype = library.bytes.restype = ctypes.c_ulong
    return library


@dataclass(slots=True)
class Line:
    """A line as ``package/file:number``, and what it takes of a message's publish, consume and ack together."""

    where: str
    source: str
    cpu_us: float


def lines(place: Path, size: int, seconds: float, most: int) -> tuple[list[Line], int]:
    """The ``most`` lines that take most CPU in ``seconds`` of it, in groups of ``size``, and how many samples there
    are."""
    samples: Counter[tuple[str, int, str]] = Counter()
    working = False
    spent_s, cycles = 0.0, 0

    def sample(number: int, frame: FrameType | None) -> None:
        if working and frame:
            code = frame.f_code
            samples[code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_qualname] += 1

    @contextmanager
    def watched(command: str) -> Iterator[None]:
        nonlocal working, spent_s
        begun, working = time.thread_time(), True
        try:
            yield
        finally:
            working = False
            spent_s += time.thread_time() - begun

    before = signal.signal(signal.SIGPROF, sample)
    try:
        with Inside(place / "sampled", size) as inside:
            inside.cycle(_nothing_around)
            signal.setitimer(signal.ITIMER_PROF, _SAMPLE_S, _SAMPLE_S)
            while spent_s < seconds:
                inside.cycle(watched)
                cycles += 1
            signal.setitimer(signal.ITIMER_PROF, 0)
    finally:
        signal.signal(signal.SIGPROF, before)
    total = max(1, sum(samples.values()))
    us_a_sample = spent_s * 1e6 / total / (size * cycles)
    return [_line(*key, found * us_a_sample) for key, found in samples.most_common(most)], total


def _line(file: str, number: int, function: str, cpu_us: float) -> Line:
    path = Path(file)
    if not path.is_file():
        return Line("generated code", f"def {function}", cpu_us)
    parts = path.parts
    package = next((at for at, part in enumerate(parts) if part.startswith("postroom_")), len(parts) - 1)
    return Line(f"{'/'.join(parts[package:])}:{number}", path.read_text().splitlines()[number - 1].strip(), cpu_us)
