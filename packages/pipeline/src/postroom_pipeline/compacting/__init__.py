"""Makes few large files of the many small ones that runs have left."""
