"""Lists of which the daemon tells a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.text import figure
from ..i18n import tr


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
