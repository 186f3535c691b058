"""Texts in the language of the user: ``LANG`` and its relatives decide, by gettext's rules."""

from __future__ import annotations

import gettext
import os
from pathlib import Path
from typing import Final

LANGUAGES: Final = ("en", "ko", "ja", "zh")
_DOMAIN: Final = "postroom-console"
_LOCALE: Final = Path(__file__).with_name("locale")
_translations: gettext.NullTranslations = gettext.NullTranslations()


def use_language(language: str = "") -> str:
    """Use a language from now on, or by default the one of the environment; the language's code, ``en`` for all that
    has no catalog."""
    global _translations
    wanted = [language] if language else None
    _translations = gettext.translation(_DOMAIN, _LOCALE, wanted, fallback=True)
    told = language or next(
        (os.environ[n] for n in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(n)), ""
    )
    code = told.partition(":")[0].partition("_")[0].partition(".")[0]
    return code if code in LANGUAGES else "en"


def tr(text: str) -> str:
    """The text in the language in use."""
    return _translations.gettext(text)


def trn(one: str, many: str, number: int) -> str:
    """One of two texts by a number, which stands in it as ``{n}``, in the language in use."""
    return _translations.ngettext(one, many, number).format(n=f"{number:,}")
