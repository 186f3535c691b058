"""W3C Trace Context: which values of ``traceparent`` name a trace."""

from __future__ import annotations

import re
from typing import Any, Final

_IDS: Final = "(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
#: Version, trace id, parent id, flags; versions behind 00 may have more behind them, ff is none.
_TRACEPARENT: Final = re.compile(f"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-[!-~]*)?")
#: Longest value that is taken: a later version may have more fields.
TRACEPARENT_LIMIT: Final = 256


def is_traceparent(value: Any) -> bool:
    """Whether a JSON value is a valid ``traceparent``: of another one nothing may be used, not even its trace id."""
    return type(value) is str and len(value) <= TRACEPARENT_LIMIT and _TRACEPARENT.fullmatch(value) is not None


def trace_id(traceparent: str) -> str:
    """The trace id of a valid ``traceparent``: 32 hex digits; empty for an empty one."""
    return traceparent[3:35]
