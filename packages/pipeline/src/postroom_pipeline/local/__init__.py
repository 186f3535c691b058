"""What runs without Spark: checking files of snapshots, bundling them, and finding out that a run has nothing to do."""
