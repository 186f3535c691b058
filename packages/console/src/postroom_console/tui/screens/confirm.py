"""Dialogs: what will happen, and whether it shall; and questions for a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from ...data.actions import Plan, lasting
from ...data.text import clean
from ...i18n import tr, trn
from ..dialog import Dialog
from ..hangul import with_hangul
from ..widgets.entry import Entry, entry
from ..widgets.line import Line, told
from ..widgets.small import is_too_small


class Confirm(Dialog[bool]):
    """Whether a plan shall be carried out. ``y`` agrees, or the queue's name where that must be typed; anything else
    does not.

    With ``count_again`` it waits until ``counted`` tells how many messages are meant, and counts once more when
    somebody has agreed: it ends when the number is still the same, and else asks again. ``undo_key`` is how the key
    is written that takes an action back.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(with_hangul("y"), "agree", "yes"),
        Binding(with_hangul("n,escape,enter"), "refuse", "no"),
    ]

    def __init__(self, plan: Plan, undo_key: str, count_again: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.plan = plan
        self.count: int | None = None
        self._undo_key = undo_key
        self._count_again = count_again
        self._is_counting = count_again is not None
        self._has_agreed = False

    def texts(self) -> Iterable[Line]:
        plan = self.plan
        yield told(f"{tr(plan.verb).upper()} {clean(plan.queue)}", "title")
        yield Line(name="note", classes="warning")
        yield Line(name="count", classes="count")
        yield told(plan.effect)
        yield Line(name="lasting")
        if plan.undo:
            yield told(tr("{key} takes it back.").format(key=self._undo_key))

    def asked(self) -> Iterable[Widget]:
        if self.plan.typed:
            yield told(tr("Type the name of the queue to go on, esc to leave:"))
            yield entry("typed")
        else:
            yield told(tr("y yes    n no"))

    def on_mount(self) -> None:
        self._tell()

    def _tell(self, note: str = "") -> None:
        if not self.query("#note"):  # it is just being opened
            return
        counted = "" if self.count is None else trn("{n} message is meant.", "{n} messages are meant.", self.count)
        lines = {
            "note": note,
            "count": tr("counting what fits...") if self._is_counting else counted,
            "lasting": lasting(self.plan, self.count),
        }
        for name, text in lines.items():
            line = self.query_one(f"#{name}", Line)
            line.tell(text)
            line.display = bool(text)

    def counted(self, count: int) -> None:
        """So many messages are meant now."""
        self._is_counting = False
        if self._has_agreed and count == self.count:
            self.dismiss(True)
            return
        has_changed = self.count is not None and count != self.count
        self._has_agreed = False
        self.count = count
        if has_changed:
            for box in self.query(Entry):
                box.value = ""
        self._tell(tr("the number has changed") if has_changed else "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.plan.is_typed(event.value):
            self._agree()
        else:
            event.input.value = ""
            self._tell(tr("this is not the name of the queue"))

    def action_agree(self) -> None:
        if not self.plan.typed:
            self._agree()

    def _agree(self) -> None:
        """Nobody agrees to what he cannot see, or to a number that is not known yet."""
        if self._is_counting or is_too_small(self.size):
            return
        if self._count_again is None:
            self.dismiss(True)
            return
        self._has_agreed = self._is_counting = True
        self._tell()
        self._count_again()

    def action_refuse(self) -> None:
        self.dismiss(False)


class Field(NamedTuple):
    """A question for a few words, and what stands there before anything is typed."""

    name: str
    label: str
    value: str = ""


class Ask(Dialog[dict[str, str] | None]):
    """A few words for each field; None when it was left. Enter goes on to the next field, then ends."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, title: str, fields: Sequence[Field]) -> None:
        super().__init__()
        self._title = title
        self._fields = fields

    def texts(self) -> Iterable[Line]:
        yield told(self._title, "title")

    def asked(self) -> Iterable[Widget]:
        for field in self._fields:
            yield told(field.label)
            yield entry(f"field-{field.name}", field.value)
        yield told(tr("enter goes on    esc leaves"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        boxes: list[Input] = list(self.query(Entry))
        at = boxes.index(event.input)
        if at + 1 < len(boxes):
            boxes[at + 1].focus()
        else:
            values = [box.value.strip() for box in boxes]
            self.dismiss({field.name: value for field, value in zip(self._fields, values, strict=True)})

    def action_leave(self) -> None:
        self.dismiss(None)
