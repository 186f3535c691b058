"""The palette: commands by their names, drawn with what every terminal has."""

from __future__ import annotations

from typing import Final

from textual.command import CommandPalette, SearchIcon

from ..i18n import tr

_ID: Final = "--command-palette"


class Palette(CommandPalette):
    """The terminal library's palette, without its emoji and its lines of blocks."""

    def __init__(self) -> None:
        super().__init__(placeholder=tr("a command's name"), id=_ID)

    def on_mount(self) -> None:
        self.query_one(SearchIcon).icon = ">"
