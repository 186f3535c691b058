"""Texts in the user's language: the locale selects it, as with gettext.

The translations are in ``locale``; ``scripts/generate-catalogs`` keeps them complete.
"""

from __future__ import annotations

import gettext
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The languages with texts. Chinese is in simplified characters.
LANGUAGES: Final = ("en", "ko", "ja", "zh")
_SOURCE: Final = "en"
_DOMAIN: Final = "postroom-console"
_LOCALE: Final = Path(__file__).with_name("locale")
_NO_LANGUAGE: Final = ("C", "POSIX")
_translations: gettext.NullTranslations = gettext.NullTranslations()


def use_language(language: str = "") -> str:
    """Use a language from now on, by default that of the environment; returns its code, ``en`` for a language without a
    catalog."""
    global _translations
    code = _supported(language) if language else language_of(os.environ)
    if code and code != _SOURCE:
        _translations = gettext.translation(_DOMAIN, _LOCALE, [code], fallback=True)
    else:
        _translations = gettext.NullTranslations()
    return code or _SOURCE


def language_of(environment: Mapping[str, str]) -> str:
    """The code of the language that an environment asks for.

    The locale is the first of ``LC_ALL``, ``LC_MESSAGES`` and ``LANG`` that is set. ``LANGUAGE`` may list preferred
    languages, of which the first with texts is taken; it has no effect in the locale ``C``. A regional locale
    (``ko_KR.UTF-8``, ``zh_TW``) uses its language.
    """
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := environment.get(name))), "C")
    if locale in _NO_LANGUAGE:
        return _SOURCE
    for wanted in (environment.get("LANGUAGE") or locale).split(":"):
        if wanted in _NO_LANGUAGE:
            break
        if code := _supported(wanted):
            return code
    return _SOURCE


def _supported(locale: str) -> str:
    """The language of a locale if it has texts, otherwise empty."""
    code = re.split(r"[-_.@]", locale, maxsplit=1)[0].lower()
    return code if code in LANGUAGES else ""


def tr(text: str, about: str = "") -> str:
    """A text in the current language. A text passed in a variable must be marked where it is written.

    ``about`` distinguishes words that are the same in English.
    """
    if not text:
        return ""  # the catalog's head has the empty text as its id
    return _translations.pgettext(about, text) if about else _translations.gettext(text)


def trn(one: str, many: str, number: int) -> str:
    """One of two texts by a number, which it contains as ``{n}``, in the current language."""
    return _translations.ngettext(one, many, number).format(n=f"{number:,}")


def mark(text: str) -> str:
    """The text itself. Tells ``scripts/generate-catalogs`` that it reaches ``tr`` in a variable."""
    return text
