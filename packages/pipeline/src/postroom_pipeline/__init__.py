"""The fleet job of Postroom; this version has no commands yet."""
