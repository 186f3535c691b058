"""Restore a root from a backup, up to an event of the journal behind it, without a moment at which it is a mixture."""

from .run import Request, Restored, restore
from .target import RestoreError, RestorePoint

__all__ = ["Request", "RestoreError", "RestorePoint", "Restored", "restore"]
