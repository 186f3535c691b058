"""The error that ends a release."""

from __future__ import annotations


class ReleaseError(Exception):
    """A package cannot be built or released; the text says why, and what to do."""
