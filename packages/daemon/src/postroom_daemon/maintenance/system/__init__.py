"""Postroom as a part of a system: its users, its directories with their modes, and what starts it.

``share/`` holds the files that a system is given.
"""
