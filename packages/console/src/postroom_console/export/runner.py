"""Exports from the command line: one, or one per interval until a signal ends it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

from postroom_common.stop_flag import StopFlag

from ..data.link import Refused, Stopped, Unreachable
from ..data.model import MALFORMED
from ..i18n import tr
from ..paths import DaemonPaths
from .exporter import Exporter
from .request import ExportRequest

#: Seconds after which a daemon that did not answer is asked again.
RETRY_S: Final = 30


class ExportRunner:
    """Makes exports and reports them. For the main thread: it handles SIGTERM and SIGINT while it runs. For one run."""

    def __init__(self, paths: DaemonPaths, request: ExportRequest) -> None:
        self._paths = paths
        self._request = request
        self._stopped = StopFlag()
        self._is_interrupted = False

    def run_once(self) -> None:
        """Make one export. Raises as ``Exporter.run``, and ``KeyboardInterrupt`` when a signal ended it."""
        with self._signals():
            try:
                self._export()
            except Stopped:
                raise KeyboardInterrupt from None

    def run_every(self, every_s: int) -> None:
        """Make an export now and every ``every_s`` seconds until SIGTERM. A failure is reported and retried: soon when
        no daemon answers, else at the next interval. Raises ``KeyboardInterrupt`` on SIGINT."""
        due_s = time.monotonic()
        with self._signals():
            while not self._stopped.wait(max(0.0, due_s - time.monotonic())):
                next_s = due_s + every_s * max(1, -(-(time.monotonic() - due_s) // every_s))
                try:
                    self._export()
                except Stopped:
                    break
                except (Unreachable, Refused, OSError, *MALFORMED) as error:
                    if isinstance(error, Unreachable):
                        next_s = min(next_s, time.monotonic() + RETRY_S)
                    wait_s = round(next_s - time.monotonic())
                    warn(f"{error}: {tr('retrying in {n} s').format(n=wait_s)}")
                due_s = next_s
        if self._is_interrupted:
            raise KeyboardInterrupt

    def _export(self) -> None:
        made = Exporter(self._paths, self._request, self._stopped.is_set, self._stopped.wait).run()
        for warning in made.warnings:
            warn(warning)
        sys.stdout.write(made.summary() + "\n")
        sys.stdout.flush()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, _: FrameType | None) -> None:
            self._is_interrupted = number == signal.SIGINT
            self._stopped.set()

        with self._stopped, self._stopped.handlers(dict.fromkeys((signal.SIGTERM, signal.SIGINT), stop)):
            yield


def warn(text: str) -> None:
    """Write a warning to standard error."""
    click.echo(f"postroom-console: {text}", err=True)
