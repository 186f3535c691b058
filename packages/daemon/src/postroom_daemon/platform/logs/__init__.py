"""The daemon's log: records of the standard library's ``logging``, to where they are read.

``set_up`` chooses the outlets. The rest of the daemon logs by ``logging.getLogger(__name__)``; what a record is about
(a request, a queue) goes with it as fields, by ``extra=about(...)``.
"""

from .outlets import figures, tick
from .records import about
from .set_up import reload, set_up, set_up_plain

__all__ = ["about", "figures", "reload", "set_up", "set_up_plain", "tick"]
