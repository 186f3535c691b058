"""The keys that work here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ...data.text import fit
from ...i18n import tr
from ..dialog import Dialog
from ..hangul import with_hangul
from ..keys import BACK, LIST, Key
from ..widgets.line import Line, told


class Help(Dialog[None]):
    """The keys of a view, and those of all. Those of lists stand last: there are other ways to find them."""

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
        yield told("\n".join(lines[:-1]))

    def asked(self) -> Iterable[Widget]:
        yield told(tr("j k scroll    esc closes this"))

    def action_leave(self) -> None:
        self.dismiss(None)
