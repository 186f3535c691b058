"""Secrets in files that only their owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from .errors import ConfigurationError

#: Fewest characters of a secret: shorter ones can be guessed.
SECRET_CHARACTERS: Final = 16
_FILE_LIMIT: Final = 1 << 20


def read_secret(path: Path, where: str) -> bytes:
    """The secret in a file that nobody but its owner may read; ``where`` is the key that names it. Raises
    ``ConfigurationError``."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError(f"{where}: {path} is no regular file")
            if status.st_mode & 0o077:
                raise ConfigurationError(f"{where}: others may read {path}: run chmod 600 {path}")
            secret = file.read(_FILE_LIMIT).strip()
    except OSError as error:
        raise ConfigurationError(f"{where}: {path}: {error.strerror}") from None
    if len(secret) < SECRET_CHARACTERS:
        raise ConfigurationError(f"{where}: the secret in {path} has fewer than {SECRET_CHARACTERS} characters")
    return secret
