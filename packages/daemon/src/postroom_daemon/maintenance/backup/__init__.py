"""Backups: the state of a root as of one event with its journal, in a folder or tar that is complete or absent."""

from .format import BackupError, FileFacts, Manifest
from .make import make_backup
from .source import Backup, open_backup

__all__ = ["Backup", "BackupError", "FileFacts", "Manifest", "make_backup", "open_backup"]
