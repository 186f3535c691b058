"""Pictures of the screen that look the same without a network."""

from __future__ import annotations

import re
from typing import Final

_FONT_FACE: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def without_web_fonts(svg: str) -> str:
    """The picture with the reader's own fonts in the place of those that would be fetched."""
    return _FONT_FACE.sub("", svg).replace("font-family: Fira Code, monospace", "font-family: monospace")
