"""Bronze: which files are new, what their lines say, and which snapshots are complete."""
