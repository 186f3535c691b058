"""The operations console of Postroom; this version has no commands yet."""
