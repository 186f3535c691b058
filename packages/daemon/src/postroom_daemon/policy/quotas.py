"""Quotas: what one account may have at most of pending requests, requests per second, waits, leases and stored bytes.

Root and the daemon's own user have none. Every refusal says what to do, and is counted by quota.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from ..model.principal import Account, name_of
from .rates import Rates

#: The names of the quotas, by which refusals are counted.
PENDING: Final = "pendingRequests"
RATE: Final = "requestsPerSec"
WAITS: Final = "waits"
LEASES: Final = "leases"
STORED: Final = "storedBytes"


class UserLimits(Protocol):
    """The settings of one user's limits; 0 means no limit."""

    @property
    def limits_user_pending_requests(self) -> int: ...
    @property
    def limits_user_pending_bytes(self) -> int: ...
    @property
    def limits_user_requests_per_sec(self) -> int: ...
    @property
    def limits_user_waits(self) -> int: ...
    @property
    def limits_user_leases(self) -> int: ...
    @property
    def limits_user_stored_bytes(self) -> int: ...


class OverQuota(CommandError):
    """A refusal that does not depend on the request: a repeat is decided from scratch."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.QUOTA_EXCEEDED, text)


class Quotas:
    """Checks the quotas of accounts (0: no limit). ``refused`` counts refusals by quota since the start."""

    def __init__(self, limits: UserLimits, daemon_uid: int) -> None:
        self.refused: Counter[str] = Counter(dict.fromkeys((PENDING, RATE, WAITS, LEASES, STORED), 0))
        self.exempt = (0, daemon_uid)
        """Accounts without quotas."""
        self._rates = Rates()
        self.reload(limits)

    def reload(self, limits: UserLimits) -> None:
        """Apply other limits."""
        self._limits = limits
        self.limits_rate = limits.limits_user_requests_per_sec > 0
        """Whether there is a limit of requests per second."""
        self.limits_leases = limits.limits_user_leases > 0
        """Whether there is a limit of leases."""

    def applies(self, account: Account) -> bool:
        """Whether quotas apply to an account."""
        return account not in self.exempt

    def may_have_pending(self, account: Account, requests: int, size: int) -> bool:
        """Whether an account may have ``requests`` pending requests of ``size`` bytes in total."""
        most, most_bytes = self._limits.limits_user_pending_requests, self._limits.limits_user_pending_bytes
        fits = (not most or requests <= most) and (not most_bytes or size <= most_bytes)
        return fits or not self.applies(account)

    def too_many_pending(self, account: Account) -> OverQuota:
        """The error for a request that exceeds ``may_have_pending``."""
        limits = self._limits
        return self._refuse(
            PENDING,
            f"{name_of(account)} has as many pending requests as one user may:"
            f" {limits.limits_user_pending_requests:,} requests (limits.userPendingRequests),"
            f" {limits.limits_user_pending_bytes:,} bytes (limits.userPendingBytes);"
            " read the answers before you send more",
        )

    def check_rate(self, account: Account, now: int) -> None:
        """Count a request that arrived at ``now`` (engine ms). Raises ``OverQuota`` if requests arrive too fast."""
        rate = self._limits.limits_user_requests_per_sec
        if rate and self.applies(account):
            name = str(account)
            wait_ms = self._rates.wait_ms(name, rate, 1, now)
            if wait_ms:
                raise self._refuse(
                    RATE,
                    f"{name_of(account)} may send {rate:,} requests a second (limits.userRequestsPerSec):"
                    f" try again in {wait_ms} ms",
                )
            self._rates.take(name)

    def check_waits(self, account: Account, waits: int) -> None:
        """Raise ``OverQuota`` if an account with ``waits`` waiting requests may not have another one."""
        most = self._limits.limits_user_waits
        if most and waits >= most and self.applies(account):
            raise self._refuse(
                WAITS,
                f"{name_of(account)} waits for messages in {waits:,} requests (limits.userWaits): let one end first",
            )

    def check_leases(self, account: Account, leases: int) -> None:
        """Raise ``OverQuota`` if an account with ``leases`` leases may not have another one."""
        most = self._limits.limits_user_leases
        if most and leases >= most and self.applies(account):
            raise self._refuse(
                LEASES,
                f"{name_of(account)} has {leases:,} messages leased (limits.userLeases): settle some first",
            )

    def check_stored(self, account: Account, stored: int, size: int) -> None:
        """Raise ``OverQuota`` if an account with ``stored`` bytes of messages may not store ``size`` bytes more."""
        most = self._limits.limits_user_stored_bytes
        if most and stored + size > most and self.applies(account):
            raise self._refuse(
                STORED,
                f"{stored:,} bytes of messages by {name_of(account)} are stored, of at most {most:,}"
                " (limits.userStoredBytes): publish again once some have been consumed; dead letters count until they"
                " are removed",
            )

    def _refuse(self, kind: str, text: str) -> OverQuota:
        self.refused[kind] += 1
        return OverQuota(text)
