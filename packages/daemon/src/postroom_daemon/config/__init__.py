"""Configuration: one table of settings, resolved once from file, environment and flags."""
