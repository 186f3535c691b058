"""The hybrid store: state in SQLite, large bodies in files."""
