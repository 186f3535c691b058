"""Observe: health, metrics, the traffic log and state files."""
