"""Mirrors the tables as those of a shared lake, which have versions: Delta tables. Needs neither Java nor Spark."""
