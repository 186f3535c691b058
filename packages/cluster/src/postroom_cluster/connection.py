"""The connection to the NATS servers, as the configuration says."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from postroom_common.errors import ConfigurationError

from .config.settings import NatsSection
from .errors import StreamUnavailable

log = logging.getLogger(__name__)
#: It warns at each end of a TLS connection of the library's streams, which is no fault.
logging.getLogger("asyncio").setLevel(logging.ERROR)

#: Time (s) for one server to accept the connection, and before the next attempt.
_CONNECT_S: Final = 2
_PAUSE_S: Final = 0.5
#: A connection without an answer to so many pings, each so many seconds after the other, is made again.
_PING_S: Final = 2
_PINGS: Final = 2


async def connect(settings: NatsSection, name: str) -> Client:
    """A connection that is made again whenever it breaks. Raises ``StreamUnavailable`` if no server accepts it, and
    ``ConfigurationError`` for a file that cannot be used."""
    client = Client()
    last_error = ""

    async def note_error(error: Exception) -> None:
        nonlocal last_error
        last_error = str(error) or type(error).__name__
        log.debug("NATS: %s", last_error)

    async def note_loss() -> None:
        if not client.is_closed:
            log.warning("the connection to the NATS servers has ended")

    async def note_return() -> None:
        log.info("connected to the NATS servers again")

    try:
        async with asyncio.timeout(_CONNECT_S * len(settings.servers) + 1):
            await client.connect(
                list(settings.servers),
                name=name,
                connect_timeout=_CONNECT_S,
                reconnect_time_wait=_PAUSE_S,  # type: ignore[arg-type] # it is passed to asyncio.sleep
                max_reconnect_attempts=-1,
                ping_interval=_PING_S,
                max_outstanding_pings=_PINGS,
                error_cb=note_error,
                disconnected_cb=note_loss,
                reconnected_cb=note_return,
                **sign_in(settings),
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        await client.close()
        reason = last_error or str(error) or "no answer"  # the library goes on after an error, until the time is over
        raise StreamUnavailable(f"no NATS server accepts a connection: {reason}") from None
    except ModuleNotFoundError:
        raise ConfigurationError(
            "credentials and nkey need the package nkeys: install postroom-cluster[nkeys]"
        ) from None
    return client


def sign_in(settings: NatsSection) -> dict[str, Any]:
    """TLS and credentials, as ``nats.connect`` takes them. Raises ``ConfigurationError``."""
    options: dict[str, Any] = {}
    if settings.tls_ca or settings.tls_certificate or any(one.startswith("tls:") for one in settings.servers):
        options["tls"] = _tls(settings)
    if settings.user:
        options["user"] = settings.user
        options["password"] = secret(Path(settings.password_file))
    elif settings.token_file:
        options["token"] = secret(Path(settings.token_file))
    elif settings.credentials:
        options["user_credentials"] = settings.credentials
    elif settings.nkey:
        options["nkeys_seed"] = settings.nkey
    return options


def secret(path: Path) -> str:
    """The text in a file that nobody but its owner may read. Raises ``ConfigurationError``."""
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(f"others may read {path}: run chmod 600 {path}")
        return path.read_text().strip()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _tls(settings: NatsSection) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.tls_certificate:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"TLS of the NATS servers: {error}") from None
    return context
