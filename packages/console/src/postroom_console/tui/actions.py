"""Runs actions for the screens: counts what they affect, asks for confirmation, executes, reports and undoes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from textual.screen import Screen

from postroom_client import PostroomError

from ..data.action_log import ActionLog
from ..data.actions import Plan
from ..data.link import Refused, Unreachable
from ..data.model import MALFORMED
from ..data.text import clean, figure
from ..data.updates import Outcome, Result, Save, Source, Work
from ..export.exporter import Exporter
from ..export.redaction import Redaction
from ..export.request import ExportRequest
from ..i18n import mark, tr
from ..paths import DaemonPaths
from .dialogs import Ask, Confirm, Field
from .keys import UNDO, Key

#: The stages of an export, as they are shown.
_STAGES: Final = {
    "state": mark("reading the state"),
    "dead letters": mark("dead letters so far"),
    "events": mark("reading the journal"),
    "file": mark("writing the file"),
}


class ActionHost(Protocol):
    """What the runner needs of the application."""

    source: Source
    action_log: ActionLog
    last_message: str

    @property
    def refusal(self) -> str:
        """Why there are no actions; empty if there are."""

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None]) -> Any:
        """Open a dialog; ``callback`` gets its result."""

    def key_label(self, key: Key) -> str:
        """How a key is written, after the user's settings."""

    def say(self, words: str) -> None:
        """Show words in the line at the bottom."""


class ActionRunner:
    """Carries plans from the key press to the log. One action at a time can be undone: the last one."""

    def __init__(self, host: ActionHost) -> None:
        self._host = host
        self._counting: dict[int, Confirm] = {}
        self._plans: dict[int, Plan] = {}
        self._undo: Plan | None = None

    def propose(self, plan: Plan) -> None:
        """Say what a plan will do, and execute it if that is confirmed.

        The dialog opens at once, even where the affected messages have to be counted first: keys pressed meanwhile are
        meant for what is on the screen.
        """
        host = self._host
        only_saves = host.source.is_live and all(isinstance(step, Save) for step in plan.steps)
        if host.refusal and not only_saves:
            host.say(host.refusal)
            return

        def answered(agreed: bool | None) -> None:
            self._forget_counting(dialog)
            if agreed:
                self._execute(plan)
            elif agreed is False:
                host.say(tr("nothing was changed"))

        dialog = Confirm(plan, host.key_label(UNDO), (lambda: self._count(dialog)) if plan.counts else None)
        host.push_screen(dialog, answered)
        if plan.counts:
            self._count(dialog)

    def propose_undo(self) -> None:
        """Propose the undo of the last action."""
        if self._undo is None:
            self._host.say(tr("the last action cannot be undone"))
        else:
            self.propose(self._undo)

    def propose_snapshot(self, paths: DaemonPaths, folder: Path) -> None:
        """Ask for a folder and a redaction, then write a snapshot. It changes nothing, so read-only users may, too."""
        host = self._host

        def answered(values: dict[str, str] | None) -> None:
            if values is None:
                return
            choices = [one.value for one in Redaction]
            if values["redact"] not in choices:
                host.say(tr("omit must be one of {choices}").format(choices=", ".join(choices)))
                return
            target = folder / Path(values["folder"]).expanduser()
            self._execute(_snapshot_plan(paths, target, Redaction(values["redact"])))

        fields = [
            Field("folder", tr("to the folder:"), clean(str(folder))),
            Field("redact", tr("omit (payload, attributes or none):"), Redaction.PAYLOAD.value),
        ]
        host.push_screen(Ask(tr("SNAPSHOT of the device"), fields), answered)

    def _count(self, dialog: Confirm) -> None:
        self._counting[self._host.source.execute(dialog.plan.counts)] = dialog

    def _forget_counting(self, dialog: Confirm) -> None:
        for ticket in [ticket for ticket, other in self._counting.items() if other is dialog]:
            del self._counting[ticket]
            self._host.source.cancel(ticket)

    def _execute(self, plan: Plan) -> None:
        self.begin(self._host.source.execute(plan.steps, plan.rate), plan)

    def begin(self, ticket: int, plan: Plan) -> None:
        """Track an action that was sent to the source: log it, and show its outcome when it comes."""
        self._plans[ticket] = plan
        self._host.action_log.begin(ticket, plan.verb, plan.queue, plan.effect)
        self._host.say(f"{tr(plan.verb)} {clean(plan.queue)}...")

    def handle(self, outcome: Outcome) -> None:
        """Take the outcome of an action, or of the counting for a dialog."""
        host = self._host
        dialog = self._counting.get(outcome.ticket)
        if dialog:
            if outcome.has_ended:
                del self._counting[outcome.ticket]
                self._finish_counting(dialog, outcome)
            return
        plan = self._plans.get(outcome.ticket)
        if outcome.has_ended:
            self._plans.pop(outcome.ticket, None)
        entry = host.action_log.end(outcome)
        if plan is None or entry is None:
            return
        title = f"{tr(plan.verb)} {clean(plan.queue)}"
        if outcome.result is Result.RUNNING and not host.last_message.startswith(title):
            return  # something else has been said meanwhile
        words = f"{title} -> {tr(outcome.result.value)} {figure(outcome.count)} {clean(entry.text)}".rstrip()
        if outcome.has_ended:
            self._undo = plan.undo if outcome.result is Result.OK else None
        if self._undo:
            words += f" ({tr('{key} undoes it').format(key=host.key_label(UNDO))})"
        if host.action_log.problem:
            words += f" ({tr('not logged')}: {clean(host.action_log.problem)})"
        host.last_message = words

    def _finish_counting(self, dialog: Confirm, outcome: Outcome) -> None:
        if outcome.result is Result.OK and outcome.count:
            dialog.counted(outcome.count)
            return
        dialog.dismiss(None)
        if outcome.result is Result.OK:
            self._host.say(tr("nothing matches: nothing was changed"))
        else:
            self._host.say(f"{tr(dialog.plan.verb)}: {clean(f'{outcome.code} {outcome.text}'.strip())}")


def _snapshot_plan(paths: DaemonPaths, folder: Path, redaction: Redaction) -> Plan:
    """Write a snapshot of the device into a folder, with the events since the last one there."""

    def run(
        is_stopped: Callable[[], bool], pause: Callable[[float], object], report: Callable[[int, str], None]
    ) -> tuple[int, str]:
        request = ExportRequest(folder, redaction=redaction)
        show_stage = lambda stage, count: report(count, tr(_STAGES[stage]))  # noqa: E731
        try:
            made = Exporter(paths, request, is_stopped, pause, show_stage).run()
        except (Refused, Unreachable, *MALFORMED) as error:
            raise PostroomError(str(error)) from error
        return made.events, "; ".join([*made.warnings, made.summary()])  # a narrow screen shows only the beginning

    effect = tr("A snapshot of the device is written to {folder}.").format(folder=clean(str(folder)))
    return Plan("snapshot", folder.name, effect, (Work(run),))
