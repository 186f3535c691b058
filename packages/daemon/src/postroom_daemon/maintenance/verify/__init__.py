"""verify and repair: everything that can be wrong with a root, told and mended."""

from .check import NotVerified, Verification
from .findings import RULES, Finding, Kind, Report, table

__all__ = ["RULES", "Finding", "Kind", "NotVerified", "Report", "Verification", "table"]
