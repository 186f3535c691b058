"""An export as an action of the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from postroom_client import PostroomError

from ..data.actions import Plan
from ..data.model import STRANGE
from ..data.text import clean
from ..data.updates import Work
from ..i18n import mark, tr
from ..places import Places
from ..plain import Refused, Unreachable
from .making import Export
from .redaction import Redaction
from .request import Request
from .running import told

#: What an export tells that it is doing, in words.
_STAGES: Final = {
    "state": mark("asking for the state"),
    "dead letters": mark("dead letters so far"),
    "events": mark("reading the journal"),
    "file": mark("writing the file"),
}


def snapshot(places: Places, folder: Path, redaction: Redaction) -> Plan:
    """Write a snapshot of the device into a folder, with what happened since the last one there."""

    def run(
        is_ended: Callable[[], bool], pause: Callable[[float], object], tell: Callable[[int, str], None]
    ) -> tuple[int, str]:
        request = Request(folder, redaction=redaction)
        try:
            made = Export(places, request, is_ended, pause, lambda what, count: tell(count, tr(_STAGES[what]))).run()
        except (Refused, Unreachable, *STRANGE) as error:
            raise PostroomError(str(error)) from error
        return made.events, "; ".join([*made.warnings, told(made)])  # a narrow screen shows the begin alone

    effect = tr("A snapshot of the device is written to {folder}.").format(folder=clean(str(folder)))
    return Plan("snapshot", folder.name, effect, (Work(run),))
