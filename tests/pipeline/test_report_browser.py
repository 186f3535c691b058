"""A page in a browser without a network; where there is no Chromium, ``test_report`` has looked at it as text."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from postroom_pipeline.pages.lines import Part
from postroom_pipeline.pages.sections import DEVICES, SECTIONS
from postroom_pipeline.pages.series import HOUR_MS, Span
from postroom_pipeline.pages.site import Site

SPAN = Span(dt.datetime(2026, 11, 27), dt.datetime(2026, 11, 28), HOUR_MS)
AT_MS = 1_795_737_600_000
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x07" + "w" * 300


def fleet() -> str:
    """A page with all of its parts, of names that mean harm."""
    course = [{"name": HOSTILE, "points": [{"at_ms": AT_MS + hour * HOUR_MS, "value": hour} for hour in range(24)]}]
    parts = {f"{name}-course": Part(course, 1) for name in ("depth", "dead", "flow")}
    for section in (DEVICES, *SECTIONS):
        row: dict[str, Any] = {f"c{number}": HOSTILE for number in range(len(section.columns))}
        if section.name == "latency":
            row |= {"c2": 9, "c3": 10, "c4": 2_000, "c5": 90_000, "c6": 90_000}
        parts[section.name] = Part([row if section.whole else row | {"device": HOSTILE}] * 3, 9)
    facts = '{"silent_ms": 9000, "usual_ms": 10, "backlog_from": 1, "backlog_to": 2, "consumer": "$(reboot)"}'
    finding = {"device": HOSTILE, "queue": HOSTILE, "kind": "consumer-dead", "n": 2.0, "since": SPAN.begin}
    parts["findings"] = Part([finding | {"facts": facts}], 1)
    return Site(SPAN, frozenset(parts), "").fleet(parts, {HOSTILE: "devices/x.html"})


def test_a_page_draws_itself_offline_at_any_width_without_a_complaint(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(fleet())
    text = page.read_text()
    assert "onerror" not in re.sub(r"&lt;img src=x onerror=alert\(1\)&gt;", "", text)
    assert not re.search(r"""(?:src|href)=["']?(?:[a-z]+:)?//|url\(|@import|<script""", text)
    assert text.count("<svg aria-hidden") >= 4
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return
    for width in (1280, 500):
        shown = tmp_path / f"{width}.png"
        run = subprocess.run(
            [
                browser,
                *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
                *("--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"),
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={width},1600",
                f"--screenshot={shown}",
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        assert "CONSOLE" not in run.stderr
        assert shown.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
