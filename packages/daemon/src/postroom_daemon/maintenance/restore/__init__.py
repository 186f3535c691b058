"""Restore a root from a backup, up to an event of the journal that continues it; it is never a mixture of two roots."""

from .run import Restored, RestoreRequest, restore
from .target import RestoreError, RestorePoint

__all__ = ["RestoreError", "RestorePoint", "RestoreRequest", "Restored", "restore"]
