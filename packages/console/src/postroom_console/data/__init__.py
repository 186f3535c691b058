"""The known state of a daemon, and the ways to get it. Nothing here imports the library for the screen."""
