"""The daemon's loop: one selector, timers, signals, reload, and the status line of the service manager."""
