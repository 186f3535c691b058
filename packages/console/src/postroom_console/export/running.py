"""Exports from the command line: one, or one each so often until a signal ends it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

from ..data.link import Stopped
from ..data.model import STRANGE
from ..data.text import figure, size
from ..i18n import tr
from ..places import Places
from ..plain import Refused, Unreachable
from .making import Export, Made
from .request import Request

#: Seconds after which a daemon that was away is asked again.
AGAIN_S: Final = 30


class Runner:
    """Makes exports and tells of them. Of the main thread: it takes SIGTERM and SIGINT while it runs."""

    def __init__(self, places: Places, request: Request) -> None:
        self._places = places
        self._request = request
        self._ended = threading.Event()
        self._is_interrupted = False

    def run_once(self) -> None:
        """One export. Raises as ``Export.run``; ``KeyboardInterrupt`` where a signal has ended it."""
        with self._signals():
            try:
                self._export()
            except Stopped:
                raise KeyboardInterrupt from None

    def run_every(self, every_s: int) -> None:
        """One each ``every_s`` seconds until SIGTERM; one at once. What fails is told and tried again: a daemon that is
        away soon, all else when the next one is due. Raises ``KeyboardInterrupt`` at SIGINT."""
        due_s = time.monotonic()
        with self._signals():
            while not self._ended.wait(max(0.0, due_s - time.monotonic())):
                next_s = due_s + every_s * max(1, -(-(time.monotonic() - due_s) // every_s))
                try:
                    self._export()
                except Stopped:
                    break
                except Unreachable as error:
                    next_s = min(next_s, time.monotonic() + AGAIN_S)
                    warn(f"{error}: {tr('it is tried again in {n} s').format(n=round(next_s - time.monotonic()))}")
                except (Refused, OSError, *STRANGE) as error:
                    warn(f"{error}: {tr('it is tried again in {n} s').format(n=round(next_s - time.monotonic()))}")
                due_s = next_s
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _export(self) -> None:
        made = Export(self._places, self._request, self._ended.is_set, self._ended.wait).run()
        for warning in made.warnings:
            warn(warning)
        sys.stdout.write(told(made) + "\n")
        sys.stdout.flush()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def end(number: int, _: FrameType | None) -> None:
            self._is_interrupted = number == signal.SIGINT
            self._ended.set()

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def told(made: Made) -> str:
    """One line about a snapshot that was made."""
    words = tr("{n} events up to event {last}").format(n=figure(made.events), last=made.last_event)
    return f"{made.path}: {words}, {size(made.file_bytes)}"


def warn(text: str) -> None:
    """Something that is to be known, beside the output."""
    click.echo(f"postroom-console: {text}", err=True)
