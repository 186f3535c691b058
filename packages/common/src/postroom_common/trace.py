"""W3C Trace Context: validation of ``traceparent``."""

from __future__ import annotations

import re
from typing import Any, Final

_IDS: Final = "(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
#: Version, trace id, parent id, flags. Versions above 00 may have more fields; ff is not a version.
_TRACEPARENT: Final = re.compile(f"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-[!-~]*)?")
#: Maximum length, in characters: a later version may have more fields.
TRACEPARENT_LIMIT: Final = 256


def is_traceparent(value: Any) -> bool:
    """Whether a JSON value is a valid ``traceparent``. Never use any part of an invalid one, not even its trace id."""
    return type(value) is str and len(value) <= TRACEPARENT_LIMIT and _TRACEPARENT.fullmatch(value) is not None


def trace_id(traceparent: str) -> str:
    """The trace id of a valid ``traceparent``: 32 hexadecimal digits; empty if ``traceparent`` is empty."""
    return traceparent[3:35]
