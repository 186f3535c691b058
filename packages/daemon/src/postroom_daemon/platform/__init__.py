"""The operating system: files, clock, ids, users, the service manager and the log."""
