"""The keys that work here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from ...data.text import fit
from ...i18n import tr
from ..hangul import with_hangul
from ..keys import BACK, LIST, Key
from ..widgets.line import Line


class Help(ModalScreen[None]):
    """The keys of a view, and those of all."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding(with_hangul("escape,q,question_mark,enter"), "leave", "leave")]

    def __init__(self, keys: Sequence[Key], everywhere: Sequence[Key], shown: Callable[[Key], str]) -> None:
        super().__init__()
        self._shown = shown
        self._keys = keys
        self._everywhere = everywhere

    def compose(self) -> ComposeResult:
        parts = ((tr("HERE"), self._keys), (tr("IN LISTS"), LIST), (tr("EVERYWHERE"), (*self._everywhere, *BACK)))
        lines = []
        for title, keys in parts:
            if keys:
                lines += [title, *(f"  {fit(self._shown(key), 7)} {tr(key.words)}" for key in keys), ""]
        with VerticalScroll(id="dialog"):
            text = Line()
            text.tell("\n".join(lines) + tr("esc closes this"))
            yield text

    def action_leave(self) -> None:
        self.dismiss(None)
