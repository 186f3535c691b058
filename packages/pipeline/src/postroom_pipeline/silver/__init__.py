"""The tables of what devices reported, each event and each snapshot once; ``ALL`` has them by name.

``ALL`` also has the tables of files, ``inventory`` and ``rejects``.
"""

from __future__ import annotations

from typing import Final

from ..bronze.inventory import INVENTORY
from ..bronze.rejects import REJECTS
from ..schema.table import Table
from .events import CONFLICTS, EVENTS
from .messages import MESSAGES
from .snapshots import ORIGINS, SNAPSHOTS
from .state import STATE
from .traffic import TRAFFIC

ALL: Final[dict[str, Table]] = {
    table.name: table
    for table in (INVENTORY, REJECTS, SNAPSHOTS, ORIGINS, EVENTS, CONFLICTS, MESSAGES, *STATE.values(), TRAFFIC)
}
