"""Texts in the language of the user: ``LANG`` and its relatives decide, by gettext's rules.

The translations stand in ``locale``; ``scripts/generate-catalogs`` keeps them complete.
"""

from __future__ import annotations

import gettext
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The languages there are texts in. Chinese is written in its simplified characters.
LANGUAGES: Final = ("en", "ko", "ja", "zh")
_SOURCE: Final = "en"
_DOMAIN: Final = "postroom-console"
_LOCALE: Final = Path(__file__).with_name("locale")
_NO_LANGUAGE: Final = ("C", "POSIX")
_translations: gettext.NullTranslations = gettext.NullTranslations()


def use_language(language: str = "") -> str:
    """Use a language from now on, or by default the one of the environment; the language's code, ``en`` for all that
    has no catalog."""
    global _translations
    code = _known(language) if language else language_of(os.environ)
    if code and code != _SOURCE:
        _translations = gettext.translation(_DOMAIN, _LOCALE, [code], fallback=True)
    else:
        _translations = gettext.NullTranslations()
    return code or _SOURCE


def language_of(environment: Mapping[str, str]) -> str:
    """The code of the language that an environment asks for.

    ``LC_ALL``, ``LC_MESSAGES`` and ``LANG`` name a locale, the first one that is not empty. ``LANGUAGE`` may list
    languages, of which the first with texts is taken; it says nothing where the locale is ``C``. A locale of a region
    (``ko_KR.UTF-8``, ``zh_TW``) uses the texts of its language.
    """
    locale = next((told for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (told := environment.get(name))), "C")
    if locale in _NO_LANGUAGE:
        return _SOURCE
    for wanted in (environment.get("LANGUAGE") or locale).split(":"):
        if wanted in _NO_LANGUAGE:
            break
        if code := _known(wanted):
            return code
    return _SOURCE


def _known(locale: str) -> str:
    """The language of a locale, if there are texts in it; else nothing."""
    code = re.split(r"[-_.@]", locale, maxsplit=1)[0].lower()
    return code if code in LANGUAGES else ""


def tr(text: str, about: str = "") -> str:
    """The text in the language in use. One that is handed in by a variable was marked where it stands.

    ``about`` tells apart what is one word in English and may be two elsewhere.
    """
    if not text:
        return ""  # the catalog's own head stands under the empty text
    return _translations.pgettext(about, text) if about else _translations.gettext(text)


def trn(one: str, many: str, number: int) -> str:
    """One of two texts by a number, which stands in it as ``{n}``, in the language in use."""
    return _translations.ngettext(one, many, number).format(n=f"{number:,}")


def mark(text: str) -> str:
    """The text itself: says to ``scripts/generate-catalogs`` that it reaches ``tr`` by a variable."""
    return text
