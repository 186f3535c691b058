"""Spark and its storage: the session, the warehouse of tables and the log of runs. Nothing here knows snapshots."""
