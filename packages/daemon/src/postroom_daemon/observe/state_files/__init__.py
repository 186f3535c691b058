"""The state of all messages in a file for each hour in which something has changed: written beside the work of a
daemon, bounded, and to be restored or imported like a backup."""

from .hourly import Snapshots

__all__ = ["Snapshots"]
