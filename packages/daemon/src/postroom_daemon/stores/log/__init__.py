"""Logs: their records in segments of files, beside the store of any backend."""
