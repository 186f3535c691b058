"""The daemon's loop: one selector, timers, signals, reload, and what the service manager is told."""
