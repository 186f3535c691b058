"""The daemon's metrics in the format of Prometheus, in an answer or in a file."""
