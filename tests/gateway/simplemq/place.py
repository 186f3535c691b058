"""Doors of SimpleMQ, and the configuration under which the daemon serves them."""

from __future__ import annotations

import os
from typing import Any

CONFIG: dict[str, Any] = {
    "access": {
        "rules": [{"who": ["principal anonymous:simplemq"], "queue": "closed", "deny": ["publish", "consume"]}],
        "default": ["publish", "consume", "browse"],
    },
    "gateway": {"users": str(os.getuid())},
}
#: A door whose messages come again at once, and one on which a consumer has no time.
DOORS = """
[doors.simplemq]
port = 0
[doors.simplemq.options]
retry_seconds = 0.001
retries = 2
priority_hosts = ["first", "second"]
strategy = "FIRST_AVAILABLE"
[doors.simplemq.options.strategies]
ordered = "ORDERED"
turns = "ROUND_ROBIN"
hosts = "PRIORITY"
loads = "LOAD_BALANCE"

[doors.simplemq-hasty]
dialect = "simplemq"
port = 0
options = {ack_seconds = 0.2, retry_seconds = 0.001, retries = 1}

[doors.simplemq-tcp]
port = 0
options = {strategy = "FIRST_AVAILABLE"}

[doors.simplemq-pair]
dialect = "simplemq"
port = 0
[doors.simplemq-pair.options.heartbeat]
server_id = "1a"
port = 0
peers = ["127.0.0.1:PEER"]
interval_seconds = 0.2

[doors.simplemq-lively]
dialect = "simplemq"
port = 0
options = {heartbeat_seconds = 0.8}
"""
