"""verify and repair: everything that can be wrong with a root, told and mended."""

from .check import NotVerified, Verification
from .findings import RULES, Finding, Kind, table
from .report import Report

__all__ = ["RULES", "Finding", "Kind", "NotVerified", "Report", "Verification", "table"]
