"""Export: the snapshot of a device, from the daemon's answers and its journal. ``docs/snapshot.md`` has the format."""
