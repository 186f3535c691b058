"""What each command decides: one function per command, grouped by what it is about."""
