"""Who a peer is: a token in its requests, or the certificate of its connection, as a principal."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from typing import Protocol

from ..contract import Principal


class Identity(Protocol):
    """What proves that a peer is a principal: the SHA-256 of its token and of its certificate; None if it has none."""

    @property
    def token_digest(self) -> bytes | None: ...
    @property
    def certificate_digest(self) -> bytes | None: ...


class Directory:
    """The principals, by what they prove themselves with."""

    def __init__(self, identities: Mapping[str, Identity]) -> None:
        self._tokens = [
            (Principal(f"token:{name}"), one.token_digest) for name, one in identities.items() if one.token_digest
        ]
        self._certificates = [
            (Principal(f"token:{name}"), one.certificate_digest)
            for name, one in identities.items()
            if one.certificate_digest
        ]

    def of_token(self, secret: bytes) -> Principal | None:
        """The principal of a token. Takes the same time whatever the token has in common with a known one."""
        return _matching(self._tokens, hashlib.sha256(secret).digest())

    def of_account(self, account: str) -> Principal | None:
        """The principal of this name, if it has a token."""
        return next((principal for principal, _ in self._tokens if principal.account == account), None)

    def of_certificate(self, der: bytes) -> Principal | None:
        """The principal of a client's certificate."""
        return _matching(self._certificates, hashlib.sha256(der).digest())


def _matching(known: list[tuple[Principal, bytes]], digest: bytes) -> Principal | None:
    found = None
    for principal, one in known:
        if hmac.compare_digest(one, digest):
            found = principal
    return found


class Authenticator:
    """Decides who the peers of one door are. ``directory`` may be replaced at a reload."""

    def __init__(self, door: str, kind: str, directory: Directory) -> None:
        self.directory = directory
        self.kind = kind
        self._anonymous = Principal(f"anonymous:{door}")
        #: What a peer that is nobody must prove, for the text of a refusal.
        self.demand = (
            "expected a client certificate that is in the gateway's configuration"
            if kind == "certificates"
            else "expected a valid token, as in 'Authorization: Bearer TOKEN'"
        )

    def of_connection(self, transport: asyncio.BaseTransport) -> Principal | None:
        """The principal of every request of a connection; None if nobody is known by it, or requests say it."""
        if self.kind == "none":
            return self._anonymous
        if self.kind != "certificates":
            return None
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = secured.getpeercert(binary_form=True) if secured else None
        return self.directory.of_certificate(certificate) if certificate else None

    def of_account(self, account: str) -> Principal | None:
        """The principal for which something else than its token vouches, if this door asks for tokens."""
        return self.directory.of_account(account) if self.kind == "tokens" else None

    def of_header(self, value: bytes | None) -> Principal | None:
        """The principal of a header ``Authorization``: ``Bearer TOKEN``, or ``Basic`` with the token as the password;
        the user's name does not matter."""
        if value is None or self.kind != "tokens":
            return None
        scheme, _, rest = value.partition(b" ")
        secret = rest.strip()
        if scheme.lower() == b"basic":
            try:
                secret = base64.b64decode(secret, validate=True).partition(b":")[2]
            except ValueError:
                return None
        elif scheme.lower() != b"bearer":
            return None
        return self.directory.of_token(secret) if secret else None
