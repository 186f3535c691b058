"""The model: records, lifecycle, requests and counters that every room knows. Nothing here reads a file."""
