"""The configuration: one table of settings, read from a TOML file."""
