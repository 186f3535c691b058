"""What all screens have in common: the line that tells how the daemon is, the last result, the keys, the filter."""

from __future__ import annotations

from typing import Any, ClassVar, Final, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from ..data.model import STRANGE
from ..data.text import clean, cut, width
from ..i18n import tr
from .desk import Desk
from .headline import Part, fitted
from .keys import BACK, FILTER, HELP, QUIT, VIEWS, Key
from .widgets.entry import Entry, entry
from .widgets.line import Line
from .widgets.row_list import RowList
from .widgets.small import Small

#: Lines of a screen that has room for all.
TALL: Final = 20


class View(Screen[None]):
    """A screen with a body of its own. ``keys`` are offered besides those that work everywhere."""

    KEYS: ClassVar[tuple[Key, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in BACK]
    #: Whether the view has a filter.
    FILTERS: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self._zoomed_first: RowList | None = None  # the list that was shown alone first
        self._asked: dict[str, dict[str, Any]] = {}

    @property
    def console(self) -> Desk:
        """The application, as far as a screen is concerned."""
        return cast(Desk, self.app)

    def compose(self) -> ComposeResult:
        yield Line(name="status")
        yield from self.compose_body()
        yield Line(name="last")
        yield entry("prompt", front=f"{tr('filter')} >")
        yield Line(name="views")
        yield Line(name="keys")
        yield Small()

    def compose_body(self) -> ComposeResult:
        """The widgets between the lines."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.prompt_line.display = False
        self.tell()

    def on_screen_resume(self) -> None:
        self.wants()
        self.tell()

    def on_screen_suspend(self) -> None:
        self.forgets()

    def on_resize(self) -> None:
        self.tell()

    # --- for the views ----------------------------------------------------------------------------------------

    def wants(self) -> None:
        """Ask for what this view shows, from now on."""

    def forgets(self) -> None:
        """Ask no more."""

    def tell_body(self) -> None:
        """Bring the body up to date with what is known."""

    def filtered(self, text: str) -> str:
        """Use a filter; the text that is wrong with it, or nothing."""
        return ""

    def summary(self) -> str:
        """A few words about what is shown, for the line at the top."""
        return ""

    def copyable(self) -> str:
        """The key or the name under the cursor."""
        return ""

    def ask(self, name: str, command: str, payload: dict[str, Any], every_ms: int) -> None:
        """Ask a question again and again, until ``forgets``. The answer to another one of that name is forgotten."""
        if self._asked.get(name) != payload:
            self._asked[name] = payload
            self.console.model.forget(name)
        self.console.source.want(name, command, payload, every_ms)

    # --- all the same -----------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Bring all of the screen up to date with what is known."""
        if not self.is_mounted or not self.query("#status"):
            return
        cells = self.size.width
        console = self.console
        wanted = clean(self.filter_text)
        filtered = f"{tr('filter')} {wanted}" if wanted else ""
        status = self.query_one("#status", Line)
        try:
            self.tell_body()  # first: the words about it tell what is shown
            parts = console.headline(Part(1, self.summary()), Part(1, filtered))
        except STRANGE as error:
            parts = [Part(0, clean(tr("an answer of another shape: {error}").format(error=repr(error))))]
        status.tell(fitted(parts, cells))
        status.set_class(console.is_stale, "stale")
        self.set_class(console.is_stale, "stale")
        self.query_one("#last", Line).tell(cut(" " + console.last_words, cells))
        self.query_one("#views", Line).tell(cut(self._views_line(), cells))
        self.query_one("#keys", Line).tell(self._keys_line(cells))
        self.query_one(Small).tell_size(self.size)

    def _views_line(self) -> str:
        """The screens, the one that is shown in brackets."""
        shown = f"view.{self.console.current_mode}"
        words = [f"{self.console.shown(key)} {tr(key.words)}" for key in VIEWS]
        return "".join(f"[{text}]" if key.id == shown else f" {text} " for key, text in zip(VIEWS, words, strict=True))

    def _keys_line(self, cells: int) -> str:
        """The keys of this screen, the most used in front; where the line of the screens is left out, also its keys."""
        shown = self.console.shown
        around = [*([FILTER] if self.FILTERS else []), HELP, QUIT]
        last = [f"{shown(key)} {tr(key.short)}" for key in around]
        if self.size.height < TALL:
            last.insert(0, f"{shown(VIEWS[0])}-{shown(VIEWS[-1])}")
        text = " "
        room = cells - 1 - width("  ".join(last))
        for key in (*self.console.FIRST_KEYS, *self.KEYS):
            word = f"{shown(key)} {tr(key.short)}  "
            if key.short and not (key.changes and self.console.read_only) and width(text + word) <= room:
                text += word
        return cut(text + "  ".join(last), cells)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No action that changes anything where one may only look."""
        changing = {key.action.partition("(")[0] for key in (*self.KEYS, *self.console.KEYS) if key.changes}
        return not (action in changing and self.console.read_only)

    def action_back(self) -> None:
        """Away from the filter's line, then from the filter."""
        if self.prompt_line.display:
            self._close_prompt()
        elif self.filter_text:
            self._use_filter("")

    def action_filter(self) -> None:
        if self.FILTERS:
            prompt = self.query_one("#prompt", Entry)
            prompt.value = self.filter_text
            self.prompt_line.display = True
            self.set_focus(prompt)  # at once: keys that came together with this one are meant for it

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "prompt":
            event.stop()
            self._use_filter(event.value.strip())
            self._close_prompt()

    def _use_filter(self, text: str) -> None:
        problem = self.filtered(text)
        if problem:
            self.console.say(problem)
        else:
            self.filter_text = text
        self.tell()

    def _close_prompt(self) -> None:
        self.prompt_line.display = False
        self.focus_body()

    @property
    def prompt_line(self) -> Widget:
        """The line in which a filter is typed, with the word in front of it."""
        return self.query_one("#prompt-line")

    def action_zoom(self) -> None:
        """One of the lists alone, the one with the keys first; then the next one, and after the last all of them. A low
        screen shows some lists only so."""
        lists = [one for one in self.query(RowList) if one.can_focus]
        alone = [one for one in lists if one.has_class("alone")]
        if alone:
            shown = lists[(lists.index(alone[0]) + 1) % len(lists)]
            wanted = None if shown is self._zoomed_first else shown
        else:
            wanted = self._zoomed_first = next((one for one in lists if one.has_focus), lists[0]) if lists else None
        for one in self.query(RowList):
            one.set_class(one is wanted, "alone")
            one.set_class(wanted is not None and one is not wanted, "away")
        (wanted or self._zoomed_first or self).focus()

    def focus_body(self) -> None:
        """Give the keys back to the list."""
        lists = self.query("RowList")
        if lists:
            self.set_focus(lists.first())  # at once, as above
