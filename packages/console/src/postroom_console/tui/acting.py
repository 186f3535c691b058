"""Plans on their way: counted, confirmed, carried out, told of, and taken back."""

from __future__ import annotations

from textual.app import App
from textual.driver import Driver

from ..data.action_log import ActionLog
from ..data.actions import Plan
from ..data.text import clean, figure
from ..data.updates import Outcome, Result, Save, Source
from ..i18n import tr
from .screens.confirm import Confirm


class Acting(App[None]):
    """The part of the application that changes something; ``last_words`` say how the last action stands."""

    def __init__(self, source: Source, log: ActionLog, read_only: bool, driver_class: type[Driver] | None) -> None:
        super().__init__(driver_class=driver_class)
        self.source = source
        self.log_of_actions = log
        self.read_only = read_only or not source.is_live
        self.last_words = ""
        self._counting: dict[int, tuple[Plan, int | None]] = {}
        self._plans: dict[int, Plan] = {}
        self._undo: Plan | None = None

    def say(self, words: str) -> None:
        """Show words in the line at the bottom."""
        self.last_words = words
        self._tell()

    def _tell(self) -> None:
        """Bring the screen up to date."""
        raise NotImplementedError

    def propose(self, plan: Plan) -> None:
        """Say what a plan will do, and do it if that is confirmed."""
        is_saving = self.source.is_live and all(isinstance(step, Save) for step in plan.steps)
        if self.read_only and not is_saving:
            self.say(tr("read-only: nothing is changed from here"))
        elif plan.counts:
            self._counting[self.source.act(plan.counts)] = (plan, None)
            self.say(tr("counting what fits..."))
        else:
            self._confirm(plan, None)

    def _confirm(self, plan: Plan, count: int | None, note: str = "") -> None:
        def answered(agreed: bool | None) -> None:
            if not agreed:
                self.say(tr("nothing was changed"))
            elif plan.counts:  # what fits may have changed while the dialog was open
                self._counting[self.source.act(plan.counts)] = (plan, count)
            else:
                self._carry_out(plan, count)

        self.push_screen(Confirm(plan, count, note), answered)

    def _carry_out(self, plan: Plan, count: int | None) -> None:
        ticket = self.source.act(plan.steps, plan.rate)
        self._plans[ticket] = plan
        self.log_of_actions.begin(ticket, plan.verb, plan.queue, plan.effect)
        self.say(f"{tr(plan.verb)} {clean(plan.queue)}...")

    def end(self, outcome: Outcome) -> None:
        """Take what became of an action, or of counting for one."""
        counted = self._counting.get(outcome.ticket)
        if counted:
            if outcome.has_ended:
                del self._counting[outcome.ticket]
                self._counted(*counted, outcome)
            return
        plan = self._plans.get(outcome.ticket)
        if outcome.has_ended:
            self._plans.pop(outcome.ticket, None)
        entry = self.log_of_actions.end(outcome)
        if plan is None or entry is None:
            return
        words = f"{tr(plan.verb)} {clean(plan.queue)} -> {tr(outcome.result.value)} {figure(outcome.count)}"
        self.last_words = f"{words} {clean(entry.text)}".rstrip()
        if outcome.result is Result.OK and plan.undo:
            self._undo = plan.undo
            self.last_words += f" ({tr('U takes it back')})"
        if outcome.code == "ERR_FORBIDDEN":
            self.read_only = True
            self.last_words += f" ({tr('this user may only look')})"

    def _counted(self, plan: Plan, expected: int | None, outcome: Outcome) -> None:
        if outcome.result is not Result.OK:
            self.last_words = f"{tr(plan.verb)}: {clean(f'{outcome.code} {outcome.text}'.strip())}"
        elif not outcome.count:
            self.last_words = tr("nothing fits: nothing is changed")
        elif expected is None or outcome.count != expected:
            self._confirm(plan, outcome.count, tr("the number has changed") if expected is not None else "")
        else:
            self._carry_out(plan, expected)

    def action_undo(self) -> None:
        if self._undo is None:
            self.say(tr("there is nothing to take back"))
            return
        plan, self._undo = self._undo, None
        self._carry_out(plan, None)
