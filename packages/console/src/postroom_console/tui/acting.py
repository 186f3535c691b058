"""Plans on their way: counted, confirmed, carried out, told of, and taken back."""

from __future__ import annotations

from textual.app import App
from textual.driver import Driver

from ..data.action_log import ActionLog
from ..data.actions import Plan
from ..data.text import clean, figure
from ..data.updates import Outcome, Result, Save, Source
from ..i18n import tr
from .keys import UNDO, Key
from .screens.confirm import Confirm


class Acting(App[None]):
    """The part of the application that changes something; ``last_words`` say how the last action stands."""

    def __init__(self, source: Source, log: ActionLog, read_only: bool, driver_class: type[Driver] | None) -> None:
        super().__init__(driver_class=driver_class)
        self.source = source
        self.log_of_actions = log
        self.read_only = read_only or not source.is_live
        self.last_words = ""
        self._counting: dict[int, Confirm] = {}
        self._plans: dict[int, Plan] = {}
        self._undo: Plan | None = None

    def say(self, words: str) -> None:
        """Show words in the line at the bottom."""
        self.last_words = words
        self._tell()

    def _tell(self) -> None:
        """Bring the screen up to date."""
        raise NotImplementedError

    def shown(self, key: Key) -> str:
        """How a key is written for people."""
        raise NotImplementedError

    def propose(self, plan: Plan) -> None:
        """Say what a plan will do, and do it if that is confirmed.

        The dialog opens at once, also where it must be counted first what is meant: keys that are pressed meanwhile are
        meant for what can be seen.
        """
        is_saving = self.source.is_live and all(isinstance(step, Save) for step in plan.steps)
        if self.read_only and not is_saving:
            self.say(tr("read-only: nothing is changed from here"))
            return

        def answered(agreed: bool | None) -> None:
            self._forget_counting(dialog)
            if agreed:
                self._carry_out(plan)
            elif agreed is False:
                self.say(tr("nothing was changed"))

        dialog = Confirm(plan, self.shown(UNDO), (lambda: self._count(dialog)) if plan.counts else None)
        self.push_screen(dialog, answered)
        if plan.counts:
            self._count(dialog)

    def _count(self, dialog: Confirm) -> None:
        self._counting[self.source.act(dialog.plan.counts)] = dialog

    def _forget_counting(self, dialog: Confirm) -> None:
        for ticket in [ticket for ticket, one in self._counting.items() if one is dialog]:
            del self._counting[ticket]
            self.source.cancel(ticket)

    def _carry_out(self, plan: Plan) -> None:
        ticket = self.source.act(plan.steps, plan.rate)
        self._plans[ticket] = plan
        self.log_of_actions.begin(ticket, plan.verb, plan.queue, plan.effect)
        self.say(f"{tr(plan.verb)} {clean(plan.queue)}...")

    def end(self, outcome: Outcome) -> None:
        """Take what became of an action, or of counting for one."""
        dialog = self._counting.get(outcome.ticket)
        if dialog:
            if outcome.has_ended:
                del self._counting[outcome.ticket]
                self._counted(dialog, outcome)
            return
        plan = self._plans.get(outcome.ticket)
        if outcome.has_ended:
            self._plans.pop(outcome.ticket, None)
        entry = self.log_of_actions.end(outcome)
        if plan is None or entry is None:
            return
        if outcome.result is Result.RUNNING and not self.last_words.startswith(f"{tr(plan.verb)} {clean(plan.queue)}"):
            return  # other words stand there meanwhile
        words = f"{tr(plan.verb)} {clean(plan.queue)} -> {tr(outcome.result.value)} {figure(outcome.count)}"
        self.last_words = f"{words} {clean(entry.text)}".rstrip()
        if outcome.has_ended:
            self._undo = plan.undo if outcome.result is Result.OK else None
        if self._undo:
            self.last_words += f" ({tr('{key} takes it back').format(key=self.shown(UNDO))})"
        if self.log_of_actions.problem:
            self.last_words += f" ({tr('not logged')}: {clean(self.log_of_actions.problem)})"

    def _counted(self, dialog: Confirm, outcome: Outcome) -> None:
        if outcome.result is Result.OK and outcome.count:
            dialog.counted(outcome.count)
            return
        dialog.dismiss(None)
        if outcome.result is Result.OK:
            self.say(tr("nothing fits: nothing is changed"))
        else:
            self.say(f"{tr(dialog.plan.verb)}: {clean(f'{outcome.code} {outcome.text}'.strip())}")

    def action_undo(self) -> None:
        if self._undo is None:
            self.say(tr("the last action cannot be taken back"))
        else:
            self.propose(self._undo)
