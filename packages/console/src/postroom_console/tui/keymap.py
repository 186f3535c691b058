"""Other keys than those of the table, as a technician's file tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from textual.keys import Keys, _character_to_key

from ..data.config import ConfigError
from ..data.text import clean
from ..i18n import tr
from .hangul import with_hangul
from .keys import BACK, EVERYWHERE, LIST, REPLAY, SCREENS, Key

_NAMED: Final = frozenset(key.value for key in Keys)
#: Alt is none of them: a terminal sends the same for ESC and the key behind it.
_MODIFIERS: Final = ("ctrl+", "shift+")
#: Letters that end the sequence of an arrow key or of a function key: a slow line may split one, and what is left
#: would be taken for a key that was pressed.
SPLIT: Final = frozenset("ABCDFHPQRSO[")


def keymap(told: Mapping[str, tuple[str, ...]], where: str = "") -> dict[str, str]:
    """The terminal library's map for the keys that are told by the ids of actions. Raises ``ConfigError``: for what is
    no id or no key, and for two actions of one screen on the same key."""
    ids = {key.id for key in all_keys()}
    changed = {}
    for name, keys in told.items():
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
                        tr("{where}: {key} is that of two actions, {one} and {other}").format(
                            where=f"{where}keys", key=one, one=other, other=key.id
                        )
                    )
    return changed


def all_keys() -> list[Key]:
    """All keys that have an id."""
    return [*EVERYWHERE, *BACK, *LIST, *REPLAY, *(key for screen in SCREENS.values() for key in screen)]


def scope(screen: str) -> list[Key]:
    """The keys that work on a screen."""
    lists = () if screen in ("message", "health") else LIST
    return [*SCREENS[screen], *EVERYWHERE, *BACK, *lists, *REPLAY]


def written(keys: str) -> str:
    """Keys of the terminal library, as people write the first of them."""
    first = keys.partition(",")[0]
    for character in map(chr, range(0x21, 0x7F)):
        if _character_to_key(character) == first:
            return character
    return first


def _name_of(text: str, where: str) -> str:
    if len(text) == 1 and text.isprintable():
        if text in SPLIT:
            raise ConfigError(
                tr("{where}: {key} cannot be used: it ends the sequences of arrow keys").format(where=where, key=text)
            )
        return _character_to_key(text)
    bare = text
    while bare.startswith(_MODIFIERS):
        bare = bare.partition("+")[2]
    if text in _NAMED or (bare != text and (len(bare) == 1 or bare in _NAMED)):
        return text
    raise ConfigError(tr("{where}: {key} is no key").format(where=where, key=clean(text)))
