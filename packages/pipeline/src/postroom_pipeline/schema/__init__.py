"""What tables look like: columns, tables as data, and the snapshot format as columns."""
