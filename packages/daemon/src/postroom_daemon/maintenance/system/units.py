"""What ``init --system`` has made for a system without a package, and hides what a package brings since."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from typing import Final

from .finding import Finding

#: Where systemd looks for units of packages.
PACKAGED_UNITS: Final = ("/usr/lib/systemd/system", "/lib/systemd/system")
_RELOAD: Final = " && systemctl daemon-reload"
#: Files of ours, the places of those of packages, and what follows the removal.
_HIDING: Final = (
    ("/etc/systemd/system/postroomd.service", PACKAGED_UNITS, _RELOAD),
    ("/etc/tmpfiles.d/postroom.conf", ("/usr/lib/tmpfiles.d",), ""),
    ("/etc/sysusers.d/postroom.conf", ("/usr/lib/sysusers.d",), ""),
)


def unit_findings() -> Iterator[Finding]:
    """Files in /etc that systemd reads in place of those of a package. A link there is an administrator's, such as of a
    unit that is masked."""
    for own, places, then in _HIDING:
        packaged = [path for place in places if os.path.exists(path := f"{place}/{os.path.basename(own)}")]
        if packaged and _is_file(own):
            problem = f"hides {packaged[0]}, which a package has brought: upgrades of that have no effect"
            yield Finding("unit", own, problem, f"rm {shlex.quote(own)}{then}")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False
