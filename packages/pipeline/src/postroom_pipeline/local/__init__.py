"""What runs without Spark: checking files of snapshots, and putting many of them into few bundles."""
