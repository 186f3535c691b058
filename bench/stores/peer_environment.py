"""The environment of the peers: apart from the product's, so that nothing of ours can depend on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
PINNED = _ROOT / "bench" / "peers.txt"
#: May be removed at any time; it is made anew when the pinned versions change.
PLACE = _ROOT / "run" / "peers"
#: The newest of them that is found runs the peers: some need a newer Python than ours does.
_PYTHONS = ("3.14", "3.13", "3.12")
_TIMEOUT_S = 300


class NoPeers(Exception):
    """The peers cannot be installed; the text says why."""


def interpreter() -> Path:
    """The Python that has the peers, which are installed when they are not there yet. Raises ``NoPeers``."""
    python, stamp = PLACE / "bin" / "python", PLACE / "installed.txt"
    if stamp.is_file() and stamp.read_text() == PINNED.read_text():
        return python
    print(f"installing {PINNED.relative_to(_ROOT)} into {PLACE.relative_to(_ROOT)}", flush=True)
    try:
        _run(_base_python(), "-m", "venv", "--clear", PLACE)
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PINNED)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None)
        raise NoPeers(f"{error}{': ' + said.strip().splitlines()[-1] if said and said.strip() else ''}") from error
    stamp.write_text(PINNED.read_text())
    return python


def _base_python() -> str:
    found = subprocess.run(
        [_ROOT / "scripts" / "find-python", *_PYTHONS], stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S
    )
    return found.stdout.strip() or sys.executable


def _run(*command: str | Path) -> None:
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=_TIMEOUT_S
    )
