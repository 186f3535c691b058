"""``postroomd``: the commands, built with click. Nothing here does the work."""

from .postroomd import main

__all__ = ["main"]
