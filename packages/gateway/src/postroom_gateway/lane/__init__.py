"""The daemon's lane, as an asyncio client. See ``docs/lane.md``."""

from .client import Lane

__all__ = ["Lane"]
