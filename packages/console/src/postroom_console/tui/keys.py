"""The keys: one table, of which bindings, the line at the bottom and the help are made.

None is a control key, and none is a letter that ends the sequence of an arrow key, which a slow line may split.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from textual.binding import Binding

from ..i18n import tr


class Key(NamedTuple):
    """``keys`` as the terminal library names them, ``shown`` as people do. ``action`` is a method without its prefix.
    ``changes`` says that it is not offered where one may only look."""

    id: str
    keys: str
    shown: str
    action: str
    words: str
    changes: bool = False

    def binding(self) -> Binding:
        return Binding(self.keys, self.action, tr(self.words), key_display=self.shown, id=self.id)


EVERYWHERE: Final = (
    Key("view.queues", "1", "1", "view('queues')", "Queues"),
    Key("view.tail", "2", "2", "view('tail')", "Tail"),
    Key("view.leases", "3", "3", "view('leases')", "Leases"),
    Key("view.dead", "4", "4", "view('dead')", "Dead"),
    Key("view.health", "5", "5", "view('health')", "Health"),
    Key("view.log", "6", "6", "view('log')", "Log"),
    Key("filter", "slash", "/", "filter", "filter"),
    Key("undo", "U", "U", "undo", "undo the last action", changes=True),
    Key("help", "question_mark", "?", "help", "help"),
    Key("palette", "colon", ":", "command_palette", "commands"),
    Key("quit", "q", "q", "quit", "quit"),
)
LIST: Final = (
    Key("down", "j,down", "j", "move(1)", "down"),
    Key("up", "k,up", "k", "move(-1)", "up"),
    Key("page.down", "pagedown", "PgDn", "page(1)", "a page down"),
    Key("page.up", "pageup", "PgUp", "page(-1)", "a page up"),
    Key("first", "g,home", "g", "first", "to the first"),
    Key("last", "G,end", "G", "last", "to the last"),
    Key("mark", "space", "space", "mark", "mark"),
    Key("mark.all", "asterisk", "*", "mark_all", "mark all that are shown"),
    Key("open", "enter", "enter", "open", "open"),
)
QUEUES: Final = (
    Key("sort", "s", "s", "sort", "sort by another column"),
    Key("pause", "p", "p", "pause", "pause or resume consuming", changes=True),
    Key("pause.publish", "i", "i", "pause_publish", "pause or resume publishing", changes=True),
    Key("move", "m", "m", "move_messages", "move the waiting messages", changes=True),
    Key("purge", "X", "X", "purge", "remove all ready messages", changes=True),
)
TAIL: Final = (
    Key("follow", "f", "f", "follow", "follow or hold"),
    Key("search", "s", "s", "search", "search"),
    Key("next", "n", "n", "next(1)", "next hit"),
    Key("previous", "N", "N", "next(-1)", "previous hit"),
    Key("own", "o", "o", "own", "show or hide this console's own requests"),
)
LEASES: Final = (
    Key("extend", "plus", "+", "settle('extend')", "extend", changes=True),
    Key("release", "l", "l", "settle('release')", "release", changes=True),
    Key("nack", "K", "K", "settle('nack')", "nack", changes=True),
)
DEAD: Final = (
    Key("reprocess", "r", "r", "reprocess", "reprocess", changes=True),
    Key("reprocess.all", "a", "a", "reprocess_all", "reprocess all of the queue that fit", changes=True),
    Key("drop", "x", "x", "drop", "remove", changes=True),
    Key("purge", "X", "X", "purge", "remove all of the queue", changes=True),
    Key("export", "e", "e", "export", "save to a file"),
)
REPLAY: Final = (
    Key("replay.pause", "P", "P", "replay_pause", "hold the recording or go on"),
    Key("replay.step", "full_stop", ".", "replay_step", "to the next change"),
    Key("replay.back", "less_than_sign", "<", "replay_seek(-1)", "10 seconds back"),
    Key("replay.forward", "greater_than_sign", ">", "replay_seek(1)", "10 seconds on"),
    Key("replay.slower", "left_curly_bracket", "{", "replay_speed(-1)", "slower"),
    Key("replay.faster", "right_curly_bracket", "}", "replay_speed(1)", "faster"),
)
BACK: Final = (Key("back", "escape", "esc", "back", "back"),)
