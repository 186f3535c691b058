"""Releases: packages built from their commits and checked as they are shipped; manual pages; Debian packages.

Nothing here is shipped. ``scripts/release`` and ``scripts/build-deb`` run it; ``docs/release.md`` tells how.
"""
