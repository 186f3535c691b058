"""Dialogs: the confirmation of an action, questions for a few words, help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from ..data.actions import Plan, lasting
from ..data.text import clean, fit
from ..i18n import tr, trn
from .keys import BACK, LIST, Key, with_hangul
from .widgets import Entry, Line, Small, entry, is_too_small, text_line

_Result = TypeVar("_Result")
#: Keys that scroll a dialog with more lines than the screen.
_SCROLLING: Final[list[BindingType]] = [
    Binding(with_hangul("k,up"), "scroll(-1)", "up"),
    Binding(with_hangul("j,down"), "scroll(1)", "down"),
    Binding("pageup", "scroll(-8)", "a page up"),
    Binding("pagedown", "scroll(8)", "a page down"),
]


class Dialog(ModalScreen[_Result]):
    """Texts that scroll, and below them a question that is always visible."""

    BINDINGS: ClassVar[list[BindingType]] = _SCROLLING

    def texts(self) -> Iterable[Line]:
        """The texts."""
        raise NotImplementedError

    def asked(self) -> Iterable[Widget]:
        """The widgets of the question."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Widget(id="dialog"):
            with VerticalScroll(id="texts", can_focus=False):
                yield from self.texts()
            with Vertical(id="asked"):
                yield from self.asked()
        yield Small()

    def on_resize(self) -> None:
        self.call_after_refresh(self._make_room)

    def _make_room(self) -> None:
        """Give the texts the lines that the question does not need."""
        asked, frame = self.query_one("#asked"), self.query_one("#dialog").gutter.height
        self.query_one("#texts").styles.max_height = max(1, self.size.height - frame - asked.outer_size.height)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#texts").scroll_relative(y=lines, animate=False)


class Confirm(Dialog[bool]):
    """Asks whether to execute a plan. ``y`` confirms, or the queue's name if it must be typed; any other key cancels.

    With ``count_again`` it waits until ``counted`` reports the number of affected messages. After the confirmation it
    counts once more: if the number is the same it closes, otherwise it asks again. ``undo_key`` is the label of the key
    that undoes an action.
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
        yield text_line(f"{tr(plan.verb).upper()} {clean(plan.queue)}", "title")
        yield Line(name="note", classes="warning")
        yield Line(name="count", classes="count")
        yield text_line(plan.effect)
        yield Line(name="lasting")
        if plan.undo:
            yield text_line(tr("{key} undoes it.").format(key=self._undo_key))

    def asked(self) -> Iterable[Widget]:
        if self.plan.typed:
            yield text_line(tr("Type the name of the queue to confirm, esc to cancel:"))
            yield entry("typed")
        else:
            yield text_line(tr("y yes    n no"))

    def on_mount(self) -> None:
        self._update()

    def _update(self, note: str = "") -> None:
        if not self.query("#note"):  # it is not open yet
            return
        counted = (
            "" if self.count is None else trn("{n} message is affected.", "{n} messages are affected.", self.count)
        )
        lines = {
            "note": note,
            "count": tr("counting messages...") if self._is_counting else counted,
            "lasting": lasting(self.plan, self.count),
        }
        for name, text in lines.items():
            line = self.query_one(f"#{name}", Line)
            line.show(text)
            line.display = bool(text)

    def counted(self, count: int) -> None:
        """Set the number of affected messages."""
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
        self._update(tr("the number has changed") if has_changed else "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.plan.is_typed(event.value):
            self._agree()
        else:
            event.input.value = ""
            self._update(tr("this is not the name of the queue"))

    def action_agree(self) -> None:
        if not self.plan.typed:
            self._agree()

    def _agree(self) -> None:
        """Confirm, unless the number is still unknown or the dialog is not completely visible."""
        if self._is_counting or is_too_small(self.size):
            return
        if self._count_again is None:
            self.dismiss(True)
            return
        self._has_agreed = self._is_counting = True
        self._update()
        self._count_again()

    def action_refuse(self) -> None:
        self.dismiss(False)


class Field(NamedTuple):
    """A question for a few words, and its default answer."""

    name: str
    label: str
    value: str = ""


class Ask(Dialog[dict[str, str] | None]):
    """Asks for a few words per field; the result is None if it was cancelled. Enter goes to the next field, and after
    the last one closes the dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, title: str, fields: Sequence[Field]) -> None:
        super().__init__()
        self._title = title
        self._fields = fields

    def texts(self) -> Iterable[Line]:
        yield text_line(self._title, "title")

    def asked(self) -> Iterable[Widget]:
        for field in self._fields:
            yield text_line(field.label)
            yield entry(f"field-{field.name}", field.value)
        yield text_line(tr("enter continues    esc cancels"))

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


class Help(Dialog[None]):
    """The keys of a view and those of all views. Those of lists come last: there are other ways to discover them."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding(with_hangul("escape,q,question_mark,enter"), "leave", "leave")]

    def __init__(self, keys: Sequence[Key], everywhere: Sequence[Key], shown: Callable[[Key], str]) -> None:
        super().__init__()
        self._shown = shown
        self._keys = keys
        self._everywhere = everywhere

    def texts(self) -> Iterable[Line]:
        parts = ((tr("HERE"), self._keys), (tr("EVERYWHERE"), (*self._everywhere, *BACK)), (tr("IN LISTS"), LIST))
        lines = []
        for title, keys in parts:
            if keys:
                lines += [title, *(f"  {fit(self._shown(key), 7)} {tr(key.words)}" for key in keys), ""]
        yield text_line("\n".join(lines[:-1]))

    def asked(self) -> Iterable[Widget]:
        yield text_line(tr("j k scroll    esc closes"))

    def action_leave(self) -> None:
        self.dismiss(None)
