"""The base of all screens: the top line, the last message, the keys, the filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from ..data.actions import save_path
from ..data.model import MALFORMED
from ..data.text import clean, cut, width
from ..i18n import tr
from .app_protocol import AppProtocol
from .headline import Part, fitted
from .keys import BACK, FILTER, HELP, QUIT, VIEWS, Key
from .row_list import RowList
from .widgets import Entry, Line, Small, entry

#: Lines of a screen with space for everything.
TALL: Final = 20


class View(Screen[None]):
    """A screen with a body of its own. ``KEYS`` are its keys besides those of all screens."""

    KEYS: ClassVar[tuple[Key, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in BACK]
    #: Whether the view has a filter.
    FILTERS: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self._zoomed_first: RowList | None = None  # the list that was zoomed first
        self._asked: dict[str, dict[str, Any]] = {}

    @property
    def console(self) -> AppProtocol:
        """The application, as a screen may use it."""
        return cast(AppProtocol, self.app)

    def compose(self) -> ComposeResult:
        yield Line(name="status")
        yield from self.compose_body()
        yield Line(name="last")
        yield entry("prompt", front=f"{tr('filter')} >")
        yield Line(name="views")
        yield Line(name="keys")
        yield Small()

    def compose_body(self) -> ComposeResult:
        """The widgets of the body."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.prompt_line.display = False
        self.refresh_view()

    def on_screen_resume(self) -> None:
        self.subscribe()
        self.refresh_view()

    def on_screen_suspend(self) -> None:
        self.unsubscribe()

    def on_resize(self) -> None:
        self.refresh_view()

    # --- for the views ----------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """Start the queries of this view."""

    def unsubscribe(self) -> None:
        """Stop them."""

    def update_body(self) -> None:
        """Bring the body up to date."""

    def apply_filter(self, text: str) -> str:
        """Use a filter; returns what is wrong with it, or an empty text."""
        return ""

    def summary(self) -> str:
        """A few words for the top line."""
        return ""

    def copy_text(self) -> str:
        """The key or name under the cursor."""
        return ""

    def poll(self, name: str, command: str, payload: dict[str, Any], every_ms: int) -> None:
        """Repeat a query until ``unsubscribe``. The answer to another query of that name is dropped."""
        if self._asked.get(name) != payload:
            self._asked[name] = payload
            self.console.model.forget(name)
        self.console.source.subscribe(name, command, payload, every_ms)

    def save_path(self, queue: str, what: str) -> Path:
        """A new file for messages that are saved or removed."""
        return save_path(self.console.save_root, queue, what, self.console.wall_ms())

    # --- shared by all views -----------------------------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Bring the whole screen up to date."""
        if not self.is_mounted or not self.query("#status"):
            return
        cells = self.size.width
        console = self.console
        wanted = clean(self.filter_text)
        filtered = f"{tr('filter')} {wanted}" if wanted else ""
        status = self.query_one("#status", Line)
        try:
            self.update_body()  # first, because the summary describes it
            parts = console.headline(Part(1, self.summary()), Part(1, filtered))
        except MALFORMED as error:
            parts = [Part(0, clean(tr("malformed answer: {error}").format(error=repr(error))))]
        status.show(fitted(parts, cells))
        status.set_class(console.is_stale, "stale")
        self.set_class(console.is_stale, "stale")
        self.query_one("#last", Line).show(cut(" " + console.last_message, cells))
        self.query_one("#views", Line).show(cut(self._views_line(), cells))
        self.query_one("#keys", Line).show(self._keys_line(cells))
        self.query_one(Small).show_size(self.size)

    def _views_line(self) -> str:
        """The screens, with the current one in brackets."""
        shown = f"view.{self.console.current_mode}"
        words = [f"{self.console.key_label(key)} {tr(key.words)}" for key in VIEWS]
        return "".join(f"[{text}]" if key.id == shown else f" {text} " for key, text in zip(VIEWS, words, strict=True))

    def _keys_line(self, cells: int) -> str:
        """The keys of this screen, the most used first. Where the line of the screens is omitted, it has their keys,
        too."""
        shown = self.console.key_label
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
        """Block actions that change something while read-only."""
        changing = {key.action.partition("(")[0] for key in (*self.KEYS, *self.console.KEYS) if key.changes}
        return not (action in changing and self.console.read_only)

    def action_back(self) -> None:
        """Close the filter's prompt, or else clear the filter."""
        if self.prompt_line.display:
            self._close_prompt()
        elif self.filter_text:
            self._use_filter("")

    def action_filter(self) -> None:
        if self.FILTERS:
            prompt = self.query_one("#prompt", Entry)
            prompt.value = self.filter_text
            self.prompt_line.display = True
            self.set_focus(prompt)  # at once: keys that came together with this one belong to the prompt

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "prompt":
            event.stop()
            self._use_filter(event.value.strip())
            self._close_prompt()

    def _use_filter(self, text: str) -> None:
        problem = self.apply_filter(text)
        if problem:
            self.console.say(problem)
        else:
            self.filter_text = text
        self.refresh_view()

    def _close_prompt(self) -> None:
        self.prompt_line.display = False
        self.focus_body()

    @property
    def prompt_line(self) -> Widget:
        """The line in which a filter is typed."""
        return self.query_one("#prompt-line")

    def action_zoom(self) -> None:
        """Show one list alone, the focused one first, then the next one, and after the last one all. Low screens show
        some lists only in this way."""
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
        """Return the focus to the list."""
        lists = self.query("RowList")
        if lists:
            self.set_focus(lists.first())  # at once, as above
