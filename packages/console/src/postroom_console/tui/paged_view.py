"""Views of lists that the daemon filters and returns in pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..data import actions
from ..data.filters import FilterError
from ..data.message_filter import message_filter
from ..data.text import clean, figure
from ..data.updates import Save
from ..i18n import tr
from .row_list import RowList
from .view import View


class Pages:
    """The position in a list: an answer's ``next`` leads to the next page, and the pages before are remembered."""

    def __init__(self) -> None:
        self._pages = [("", 0)]  # the beginning of each page, and the number of messages before it

    @property
    def after(self) -> str:
        """The beginning of the page, for a query."""
        return self._pages[-1][0]

    def first(self) -> None:
        """Go to the first page: another list is shown."""
        self._pages = self._pages[:1]

    def next(self, answer: Mapping[str, Any]) -> bool:
        """Go to the page after an answer; returns whether there is one."""
        if not answer.get("next") or answer["next"] == self.after:
            return False
        self._pages.append((str(answer["next"]), self._pages[-1][1] + len(answer.get("messages", ()))))
        return True

    def previous(self) -> bool:
        """Go to the page before; returns whether there is one."""
        if len(self._pages) < 2:
            return False
        self._pages.pop()
        return True

    def range_text(self, answer: Mapping[str, Any]) -> str:
        """The range that is shown; empty if it is all."""
        number = len(answer.get("messages", ()))
        if len(self._pages) == 1 and not answer.get("next"):
            return ""
        first = self._pages[-1][1] + 1
        return f"{figure(first)}-{figure(first + number - 1)}" + (f" {tr('m more')}" if answer.get("next") else "")


class PagedView(View):
    """A view with a list of messages that comes in pages: the answer to the query ``QUERY``, in the widget
    ``LISTED``."""

    QUERY: ClassVar[str]
    LISTED: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages()

    def selection(self) -> dict[str, Any]:
        """The queue and the filter, as a request has them."""
        raise NotImplementedError

    def answer(self) -> Mapping[str, Any]:
        """The last answer; empty while there is none."""
        return self.console.model.data(self.QUERY)

    def poll_page(self, command: str, limit: int, preview_bytes: int) -> None:
        """Query the current page."""
        after = {"after": self.pages.after} if self.pages.after else {}
        self.poll(
            self.QUERY, command, {**self.selection(), "limit": limit, "previewBytes": preview_bytes, **after}, 3000
        )

    def listed(self) -> RowList:
        return self.query_one(f"#{self.LISTED}", RowList)

    def chosen_keys(self) -> list[str]:
        """The keys of the marked messages, or of the one under the cursor."""
        return [str(row.key) for row in self.listed().chosen]

    def empty_text(self, otherwise: str) -> str:
        """Why the list is empty."""
        refusal = self.console.model.refusals.get(self.QUERY)
        return clean(refusal) if refusal else otherwise if self.answer() else tr("loading...")

    def marked_text(self) -> str:
        marked = len(self.listed().marks)
        return f"{tr('marked')} {marked}" if marked else ""

    def copy_text(self) -> str:
        row = self.listed().current
        return str(row.key) if row else ""

    def apply_filter(self, text: str) -> str:
        try:
            message_filter(text)
        except FilterError as error:
            return str(error)
        self.filter_text = text
        self.first()
        return ""

    def first(self) -> None:
        """Go to the first page of another list, without marks."""
        self.pages.first()
        self.listed().marks.clear()
        self.subscribe()

    def action_more(self) -> None:
        if self.pages.next(self.answer()):
            self.subscribe()
        else:
            self.console.say(tr("no more pages"))

    def action_less(self) -> None:
        if self.pages.previous():
            self.subscribe()

    def save_all(self, command: str, queue: str, what: str) -> None:
        """Save all messages that match to a file, with their bodies."""
        path = self.save_path(queue, what)
        asked = ({**self.selection(), "limit": 1000, "fullBodies": True},)
        self.console.propose(actions.export(queue, Save(path, command, asked, "messages")))
