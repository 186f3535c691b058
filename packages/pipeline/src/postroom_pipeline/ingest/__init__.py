"""Takes snapshots in: which files are new, what their lines say, which snapshots are whole."""
