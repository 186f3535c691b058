"""Restore a root from a backup, up to an event of the journal that continues it; it is never a mixture of two roots."""

from .run import Request, Restored, restore
from .target import RestoreError, RestorePoint

__all__ = ["Request", "RestoreError", "RestorePoint", "Restored", "restore"]
