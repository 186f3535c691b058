"""verify and repair: find everything that can be wrong with a root, and fix it."""

from .check import NotVerified, Verification
from .findings import RULES, Finding, Kind, Report, table

__all__ = ["RULES", "Finding", "Kind", "NotVerified", "Report", "Verification", "table"]
