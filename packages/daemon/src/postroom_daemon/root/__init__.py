"""The root: opened, locked, recovered."""
