"""Letters of the Korean two-set keyboard: what a key sends while Hangul is switched on, and the Latin letter on it."""

from __future__ import annotations

from typing import Final

_KEYS: Final = dict(
    zip("qwertyuiopasdfghjklzxcvbnm", "ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔㅁㄴㅇㄹㅎㅗㅓㅏㅣㅋㅌㅊㅍㅠㅜㅡ", strict=True)
)
#: With shift only these differ.
_SHIFTED: Final = dict(zip("QWERTOP", "ㅃㅉㄸㄲㅆㅒㅖ", strict=True))
_JAMO: Final = _KEYS | _SHIFTED


def with_hangul(keys: str) -> str:
    """Names of keys, separated by commas, and for each letter among them the one of the Korean keyboard on its key."""
    names = keys.split(",")
    return ",".join([*names, *(_JAMO[name] for name in names if name in _JAMO)])
