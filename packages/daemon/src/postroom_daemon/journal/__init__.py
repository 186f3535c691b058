"""The journal: append, sync, read, order and audit of the files that are the truth."""
