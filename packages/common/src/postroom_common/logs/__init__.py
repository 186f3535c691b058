"""The log of a service, built on the standard library's ``logging``.

``set_up`` chooses the outlets. The rest of the program logs with ``logging.getLogger(__name__)``. A record carries what
it is about (a request, a queue) as fields: ``extra=about(...)``.
"""

from .outlets import figures, reload, set_up, set_up_plain, tick
from .records import about

__all__ = ["about", "figures", "reload", "set_up", "set_up_plain", "tick"]
