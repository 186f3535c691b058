"""TLS of a door, from its files."""

from __future__ import annotations

import re
import ssl
from typing import Final, NamedTuple, Protocol

from postroom_common.errors import PostroomError

_CERTIFICATE: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----.+?-----END", re.DOTALL)


class InvalidTls(PostroomError):
    """A file of TLS cannot be used; the text names it and says why."""


class TlsSettings(Protocol):
    """Paths of files (PEM); empty: none."""

    @property
    def tls_certificate(self) -> str: ...
    @property
    def tls_key(self) -> str: ...
    @property
    def tls_client_ca(self) -> str: ...


class Tls(NamedTuple):
    """What connections are secured with. ``authorities`` are the certificates that vouch for clients, which are asked
    for a certificate if there are any."""

    context: ssl.SSLContext
    authorities: frozenset[bytes]

    def trusts_all_of(self, other: Tls) -> bool:
        """Whether all clients that ``other`` lets in are let in by this, too."""
        return not self.authorities or (bool(other.authorities) and other.authorities <= self.authorities)


def read_tls(settings: TlsSettings) -> Tls | None:
    """TLS as the files of a door say; None without a certificate. Raises ``InvalidTls``."""
    if not settings.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise InvalidTls(f"{settings.tls_certificate}, {settings.tls_key}: {error.strerror or error}") from None
    authorities: frozenset[bytes] = frozenset()
    if settings.tls_client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(settings.tls_client_ca)
            with open(settings.tls_client_ca, "rb") as file:
                authorities = frozenset(_CERTIFICATE.findall(file.read()))
        except (OSError, ssl.SSLError) as error:
            raise InvalidTls(f"{settings.tls_client_ca}: {error.strerror or error}") from None
    return Tls(context, authorities)


def _no_password() -> str:
    """Instead of asking at the terminal."""
    raise ssl.SSLError("the key is encrypted, and a service has nobody to ask for its password")
