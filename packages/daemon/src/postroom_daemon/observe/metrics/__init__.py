"""What the daemon measures, as Prometheus reads it: a text for its collectors, in an answer or in a file."""
