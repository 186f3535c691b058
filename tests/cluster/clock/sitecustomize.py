"""A Python process that begins with this directory in ``PYTHONPATH`` has a wall clock that is ``CLOCK_OFF_S`` s off."""

from __future__ import annotations

import os
import time

_OFF_S = int(os.environ["CLOCK_OFF_S"])
_right_s, _right_ns = time.time, time.time_ns

time.time = lambda: _right_s() + _OFF_S
time.time_ns = lambda: _right_ns() + _OFF_S * 10**9
