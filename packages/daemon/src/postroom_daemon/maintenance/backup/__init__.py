"""A backup: all that a root holds at one event, in a folder or a tar that is complete or not there."""

from .format import BackupError, FileFacts, Manifest
from .make import make_backup
from .source import Backup, open_backup

__all__ = ["Backup", "BackupError", "FileFacts", "Manifest", "make_backup", "open_backup"]
