"""The configuration under which clients of smss may do everything."""

from __future__ import annotations

import os
from typing import Any

CONFIG: dict[str, Any] = {
    "access": {
        "operators": ["principal anonymous:smss", "principal anonymous:smss-lively"],
        "rules": [],
        "default": ["publish", "consume", "browse"],
    },
    "gateway": {"users": str(os.getuid())},
}
#: A door as it is by default, one that gives signs of life often, and one whose clients are nobody in particular.
DOORS = """
[doors.smss]
port = 0

[doors.smss-lively]
dialect = "smss"
port = 0
options = {alive_seconds = 0.2}

[doors.smss-guest]
dialect = "smss"
port = 0
"""
