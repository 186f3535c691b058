"""The daemon of Postroom: ``postroomd``."""
