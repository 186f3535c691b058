"""Dialogs: what will happen, and whether it shall; and questions for a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from ...data.actions import Plan, lasting
from ...data.text import clean
from ...i18n import tr, trn
from ..hangul import with_hangul
from ..widgets.line import Line


class Confirm(ModalScreen[bool]):
    """Whether a plan shall be carried out. ``y`` agrees, or the queue's name where that must be typed; anything else
    does not."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(with_hangul("y"), "agree", "yes"),
        Binding(with_hangul("n,escape,enter"), "refuse", "no"),
    ]

    def __init__(self, plan: Plan, count: int | None, note: str = "") -> None:
        super().__init__()
        self._plan = plan
        self._count = count
        self._note = note

    def compose(self) -> ComposeResult:
        plan = self._plan
        with Vertical(id="dialog"):
            yield _told(f"{tr(plan.verb).upper()} {clean(plan.queue)}", "title")
            if self._note:
                yield _told(self._note, "warning")
            yield _told(plan.effect)
            if self._count is not None:
                yield _told(trn("{n} message is meant.", "{n} messages are meant.", self._count), "count")
            if lasting(plan, self._count):
                yield _told(lasting(plan, self._count))
            if plan.undo:
                yield _told(tr("U takes it back."))
            if plan.typed:
                yield _told(tr("Type the name of the queue to go on, esc to leave:"))
                field = Input(id="typed", select_on_focus=False)
                field.cursor_blink = False
                yield field
            else:
                yield _told(tr("y yes    n no"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value == self._plan.typed:
            self.dismiss(True)
        else:
            self.query_one("#typed", Input).value = ""

    def action_agree(self) -> None:
        if not self._plan.typed:
            self.dismiss(True)

    def action_refuse(self) -> None:
        self.dismiss(False)


class Field(NamedTuple):
    """A question for a few words, and what stands there before anything is typed."""

    name: str
    label: str
    value: str = ""


class Ask(ModalScreen[dict[str, str] | None]):
    """A few words for each field; None when it was left. Enter goes on to the next field, then ends."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, title: str, fields: Sequence[Field]) -> None:
        super().__init__()
        self._title = title
        self._fields = fields

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield _told(self._title, "title")
            for field in self._fields:
                yield _told(field.label)
                box = Input(field.value, id=f"field-{field.name}", select_on_focus=False)
                box.cursor_blink = False
                yield box
            yield _told(tr("enter goes on    esc leaves"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        boxes = list(self.query(Input))
        at = boxes.index(event.input)
        if at + 1 < len(boxes):
            boxes[at + 1].focus()
        else:
            values = [box.value.strip() for box in boxes]
            self.dismiss({field.name: value for field, value in zip(self._fields, values, strict=True)})

    def action_leave(self) -> None:
        self.dismiss(None)


def _told(text: str, classes: str | None = None) -> Line:
    line = Line(classes=classes)
    line.tell(text)
    return line
