"""``postroomd import smss``: topics and messages of smss's data directory become events of the journal."""

from .run import SmssImport, SmssSettings, check_smss, import_smss

__all__ = ["SmssImport", "SmssSettings", "check_smss", "import_smss"]
