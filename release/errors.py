"""What ends a release."""

from __future__ import annotations


class ReleaseError(Exception):
    """It cannot be built, or not be released as it is; the text says why, and what to do."""
