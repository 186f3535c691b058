"""The keys: one table, from which bindings, the bottom line and the help are made, and the keys of the user's settings.

None is a control key, and none is a letter that ends the sequence of an arrow key, which a slow line may split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from textual.binding import Binding
from textual.keys import Keys

from ..data.config import ConfigError
from ..data.text import clean
from ..i18n import tr
from .key_parser import key_name

_KEYS: Final = dict(
    zip("qwertyuiopasdfghjklzxcvbnm", "ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔㅁㄴㅇㄹㅎㅗㅓㅏㅣㅋㅌㅊㅍㅠㅜㅡ", strict=True)
)
#: The letters that differ with shift.
_SHIFTED: Final = dict(zip("QWERTOP", "ㅃㅉㄸㄲㅆㅒㅖ", strict=True))
_JAMO: Final = _KEYS | _SHIFTED


def with_hangul(keys: str) -> str:
    """Key names separated by commas, each with the letter of the Korean keyboard on the same key."""
    names = keys.split(",")
    return ",".join([*names, *(_JAMO[name] for name in names if name in _JAMO)])


class Key(NamedTuple):
    """A key. ``keys`` are Textual's names, ``shown`` is the label. ``action`` is a method without ``action_``.
    ``changes`` marks actions that are not available when read-only. ``short`` is a word for the bottom line, which
    omits a key without one."""

    id: str
    keys: str
    shown: str
    action: str
    words: str
    changes: bool = False
    short: str = ""

    def binding(self) -> Binding:
        return Binding(with_hangul(self.keys), self.action, tr(self.words), key_display=self.shown, id=self.id)


#: The screens by number.
VIEWS: Final = (
    Key("view.queues", "1", "1", "view('queues')", "Queues"),
    Key("view.tail", "2", "2", "view('tail')", "Tail"),
    Key("view.leases", "3", "3", "view('leases')", "Leases"),
    Key("view.dead", "4", "4", "view('dead')", "Dead"),
    Key("view.health", "5", "5", "view('health')", "Health"),
    Key("view.log", "6", "6", "view('log')", "Log"),
)
FILTER: Final = Key("filter", "slash", "/", "filter", "filter", short="filter")
HELP: Final = Key("help", "question_mark", "?", "help", "help", short="help")
UNDO: Final = Key("undo", "U", "U", "undo", "undo the last action", changes=True)
PALETTE: Final = Key("palette", "colon", ":", "command_palette", "find commands by name")
QUIT: Final = Key("quit", "q", "q", "quit", "quit", short="quit")
EVERYWHERE: Final = (
    *VIEWS,
    FILTER,
    Key("copy", "y", "y", "copy", "copy the key under the cursor to the terminal's clipboard"),
    Key("snapshot", "E", "E", "snapshot", "write a snapshot of the device to a file"),
    UNDO,
    HELP,
    PALETTE,
    QUIT,
)
LIST: Final = (
    Key("down", "j,down", "j", "move(1)", "down"),
    Key("up", "k,up", "k", "move(-1)", "up"),
    Key("page.down", "pagedown", "PgDn", "page(1)", "a page down"),
    Key("page.up", "pageup", "PgUp", "page(-1)", "a page up"),
    Key("first", "g,home", "g", "first", "to the first"),
    Key("last", "G,end", "G", "last", "to the last"),
    Key("right", "right", "right", "sideways(1)", "widen the columns, then scroll right"),
    Key("left", "left", "left", "sideways(-1)", "scroll left"),
    Key("other", "tab", "tab", "app.focus_next", "to the other list"),
    Key("zoom", "Z", "Z", "screen.zoom", "one list alone, the next one, all lists"),
    Key("mark", "space", "space", "mark", "mark"),
    Key("mark.all", "asterisk", "*", "mark_all", "mark all rows, or none"),
    Key("open", "enter", "enter", "open", "open"),
)
QUEUES: Final = (
    Key("pause", "p", "p", "pause", "pause or resume consuming", True, "pause"),
    Key("pause.publish", "i", "i", "pause_publish", "pause or resume publishing", True, "pause input"),
    Key("sort", "s", "s", "sort", "sort by another column", short="sort"),
    Key("move", "m", "m", "move_messages", "move the waiting messages to another queue", True, "move"),
    Key("purge", "X", "X", "purge", "remove all ready messages", True, "purge"),
)
QUEUE: Final = (
    Key("queue.state", "s", "s", "state", "messages in another state", short="state"),
    Key("queue.more", "m", "m", "more", "next page of messages", short="more"),
    Key("queue.less", "b", "b", "less", "previous page"),
    Key("queue.hold", "h", "h", "hold", "put the marked ones on hold, or take them off hold", True, "hold"),
    Key("queue.move", "t", "t", "move_messages", "move the marked ones to another queue", True, "move"),
    Key("queue.policy", "w", "w", "policy", "change the policy", True, "policy"),
    Key("queue.export", "e", "e", "export", "save the matching messages of this state to a file", short="save"),
    Key("queue.purge", "X", "X", "purge", "remove all messages in this state", True, "purge"),
)
TAIL: Final = (
    Key("follow", "f", "f", "follow", "follow, or stop following", short="follow"),
    Key("search", "s", "s", "search", "search", short="search"),
    Key("next", "n", "n", "next(1)", "next hit", short="next"),
    Key("previous", "N", "N", "next(-1)", "previous hit"),
    Key("bursts", "b", "b", "bursts", "collapse bursts of similar lines, or show all lines", short="bursts"),
    Key("own", "o", "o", "own", "show or hide requests of consoles", short="consoles"),
)
LEASES: Final = (
    Key("extend", "plus", "+", "settle('extend')", "restart the duration of the lease", True, "extend"),
    Key("release", "l", "l", "settle('release')", "return the message without counting the attempt", True, "release"),
    Key("nack", "K", "K", "settle('nack')", "count the delivery as failed", True, "nack"),
    Key("leases.sort", "s", "s", "sort", "sort by another column", short="sort"),
)
DEAD: Final = (
    Key("reprocess", "r", "r", "reprocess", "reprocess the marked ones", True, "reprocess"),
    Key(
        "reprocess.all",
        "a",
        "a",
        "reprocess_all",
        "reprocess all matching letters, at a rate or elsewhere",
        True,
        "all",
    ),
    Key("reprocess.to", "t", "t", "reprocess_to", "reprocess the marked ones to another queue", True, "other"),
    Key("drop", "x", "x", "drop", "remove the marked ones", True, "remove"),
    Key("quarantine", "z", "z", "quarantine", "quarantine the marked ones, or undo that", True, "quarantine"),
    Key("dead.export", "e", "e", "export", "save all matching letters to a file", short="save"),
    Key("dead.more", "m", "m", "more", "next page of letters", short="more"),
    Key("dead.less", "b", "b", "less", "previous page"),
    Key("dead.purge", "X", "X", "purge", "remove all letters of the queue", True),
)
LOG: Final = (Key("log.stop", "c", "c", "stop", "stop the running action", True, "stop"),)
MESSAGE: Final = (
    Key("top", "g", "g", "top", "to the top"),
    Key("message.export", "e", "e", "export", "save the message with its complete body to a file", short="save"),
)
REPLAY: Final = (
    Key("replay.pause", "v", "v", "replay_pause", "pause or continue the recording", short="pause"),
    Key("replay.step", "full_stop", ".", "replay_step", "to the next change", short="step"),
    Key("replay.back", "less_than_sign", "<", "replay_seek(-1)", "10 seconds back", short="back"),
    Key("replay.forward", "greater_than_sign", ">", "replay_seek(1)", "10 seconds forward", short="on"),
    Key("replay.slower", "left_curly_bracket", "{", "replay_speed(-1)", "slower"),
    Key("replay.faster", "right_curly_bracket", "}", "replay_speed(1)", "faster"),
)
BACK: Final = (Key("back", "escape", "esc", "back", "back"),)
#: The keys of each screen, besides those of lists and those of all screens.
SCREENS: Final = {
    "queues": QUEUES,
    "queue": QUEUE,
    "tail": TAIL,
    "leases": LEASES,
    "dead": DEAD,
    "message": MESSAGE,
    "health": (),
    "log": LOG,
}

_NAMED: Final = frozenset(key.value for key in Keys)
#: Not Alt: a terminal sends it as ESC and the key.
_MODIFIERS: Final = ("ctrl+", "shift+")
#: Letters that end the sequence of an arrow or function key: a slow line may split the sequence, and the rest would
#: count as a key press.
SPLIT: Final = frozenset("ABCDFHPQRSO[")


def keymap(keys_by_id: Mapping[str, tuple[str, ...]], where: str = "") -> dict[str, str]:
    """Textual's keymap for keys by action id. Raises ``ConfigError`` for an unknown id or key, and for two actions of
    one screen with the same key."""
    ids = {key.id for key in all_keys()}
    changed = {}
    for name, keys in keys_by_id.items():
        if name not in ids:
            raise ConfigError(tr("{where}: there is no such action").format(where=f"{where}keys.{clean(name)}"))
        changed[name] = with_hangul(",".join(_name_of(key, f"{where}keys.{name}") for key in keys))
    for screen in SCREENS:
        taken: dict[str, str] = {}
        for key in scope(screen):
            for one in changed.get(key.id, key.keys).split(","):
                other = taken.setdefault(one, key.id)
                if other != key.id:
                    raise ConfigError(
                        tr("{where}: {key} is used by two actions, {one} and {other}").format(
                            where=f"{where}keys", key=one, one=other, other=key.id
                        )
                    )
    return changed


def all_keys() -> list[Key]:
    """All keys with an id."""
    return [*EVERYWHERE, *BACK, *LIST, *REPLAY, *(key for screen in SCREENS.values() for key in screen)]


def scope(screen: str) -> list[Key]:
    """The keys that work on a screen."""
    lists = () if screen in ("message", "health") else LIST
    return [*SCREENS[screen], *EVERYWHERE, *BACK, *lists, *REPLAY]


def key_label(keys: str) -> str:
    """The label of the first of several keys."""
    first = keys.partition(",")[0]
    return next((character for character in map(chr, range(0x21, 0x7F)) if key_name(character) == first), first)


def _name_of(text: str, where: str) -> str:
    if len(text) == 1 and text.isprintable():
        if text in SPLIT:
            raise ConfigError(
                tr("{where}: {key} cannot be used: it ends the sequences of arrow keys").format(where=where, key=text)
            )
        return key_name(text)
    bare = text
    while bare.startswith(_MODIFIERS):
        bare = bare.partition("+")[2]
    if text in _NAMED or (bare != text and (len(bare) == 1 or bare in _NAMED)):
        return text
    raise ConfigError(tr("{where}: {key} is not a key").format(where=where, key=clean(text)))
