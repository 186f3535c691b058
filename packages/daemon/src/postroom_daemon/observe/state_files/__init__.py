"""Hourly state files: the whole state in one file for each hour in which something has changed, written between groups,
limited in age, number and size. A state file is a backup without a journal, in the same form."""

from .hourly import Snapshots

__all__ = ["Snapshots"]
