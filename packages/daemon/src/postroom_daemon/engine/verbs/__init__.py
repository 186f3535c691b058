"""The commands: one function for each, grouped by subject."""
