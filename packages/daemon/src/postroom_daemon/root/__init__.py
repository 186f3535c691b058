"""The root: preflight, locks, recovery, and what an open root consists of."""
