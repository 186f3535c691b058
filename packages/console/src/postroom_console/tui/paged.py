"""Lists that the daemon filters, and of which it tells a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..data import actions
from ..data.filters import FilterError
from ..data.message_filter import message_filter
from ..data.text import clean, figure
from ..data.updates import Save
from ..i18n import tr
from .saving import save_path
from .view import View
from .widgets.row_list import RowList


class Pages:
    """Which page is shown: the answers' ``next`` leads on, and the way that was gone leads back."""

    def __init__(self) -> None:
        self._pages = [("", 0)]  # where each begins, and how many messages stand in front of it

    @property
    def after(self) -> str:
        """Where the page begins, as a question says it."""
        return self._pages[-1][0]

    def begin(self) -> None:
        """Back to the first page: something else is listed."""
        self._pages = self._pages[:1]

    def more(self, told: Mapping[str, Any]) -> bool:
        """On behind an answer; whether there is more."""
        if not told.get("next") or told["next"] == self.after:
            return False
        self._pages.append((str(told["next"]), self._pages[-1][1] + len(told.get("messages", ()))))
        return True

    def less(self) -> bool:
        """Back by a page; whether there is one."""
        if len(self._pages) < 2:
            return False
        self._pages.pop()
        return True

    def words(self, told: Mapping[str, Any]) -> str:
        """Which part is shown; empty when it is all."""
        number = len(told.get("messages", ()))
        if len(self._pages) == 1 and not told.get("next"):
            return ""
        first = self._pages[-1][1] + 1
        return f"{figure(first)}-{figure(first + number - 1)}" + (f" {tr('m more')}" if told.get("next") else "")


class PagedView(View):
    """A view with a list of messages that the daemon filters and tells by pages: the answer to ``QUESTION``, in the
    widget ``LISTED``."""

    QUESTION: ClassVar[str]
    LISTED: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages()

    def meant(self) -> dict[str, Any]:
        """The queue, and which of its messages, as a request says it."""
        raise NotImplementedError

    def told(self) -> Mapping[str, Any]:
        """The last answer about them; empty when there is none yet."""
        told = self.console.model.slices.get(self.QUESTION)
        return told.data if told else {}

    def ask_page(self, command: str, limit: int, preview_bytes: int) -> None:
        """Ask for the page that is shown."""
        after = {"after": self.pages.after} if self.pages.after else {}
        self.ask(self.QUESTION, command, {**self.meant(), "limit": limit, "previewBytes": preview_bytes, **after}, 3000)

    def listed(self) -> RowList:
        return self.query_one(f"#{self.LISTED}", RowList)

    def chosen_keys(self) -> list[str]:
        """The keys of the marked messages, or of the one under the cursor."""
        return [str(row.key) for row in self.listed().chosen]

    def none_words(self, otherwise: str) -> str:
        """Why the list is empty."""
        refusal = self.console.model.refusals.get(self.QUESTION)
        return clean(refusal) if refusal else otherwise if self.told() else tr("asking...")

    def marked_words(self) -> str:
        marked = len(self.listed().marks)
        return f"{tr('marked')} {marked}" if marked else ""

    def copyable(self) -> str:
        row = self.listed().current
        return str(row.key) if row else ""

    def filtered(self, text: str) -> str:
        try:
            message_filter(text)
        except FilterError as error:
            return str(error)
        self.filter_text = text
        self.begin()
        return ""

    def begin(self) -> None:
        """Ask for the first page: others are listed from now on, of which none is marked."""
        self.pages.begin()
        self.listed().marks.clear()
        self.wants()

    def action_more(self) -> None:
        if self.pages.more(self.told()):
            self.wants()
        else:
            self.console.say(tr("there are no more"))

    def action_less(self) -> None:
        if self.pages.less():
            self.wants()

    def save_all(self, command: str, queue: str, what: str) -> None:
        """Save all messages that are meant to a file, with their bodies."""
        path = save_path(self.console, queue, what)
        asked = ({**self.meant(), "limit": 1000, "fullBodies": True},)
        self.console.propose(actions.export(queue, Save(path, command, asked, "messages")))
