"""What one account may have at most: pending requests, requests a second, waits, leases, stored bytes.

Root and the daemon's own user have no limits. Every refusal says what to do, and is counted by its quota.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from ..model.principal import Account, name_of
from .rates import Rates

#: What refusals are counted by.
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
    """A refusal that says nothing of the request: a repeat is looked at anew."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.QUOTA_EXCEEDED, text)


class Quotas:
    """The limits by user, of which 0 is none, and what was refused by them since the start."""

    def __init__(self, limits: UserLimits, daemon_uid: int) -> None:
        self.refused: Counter[str] = Counter(dict.fromkeys((PENDING, RATE, WAITS, LEASES, STORED), 0))
        self._limits = limits
        self._exempt = (0, daemon_uid)
        self._rates = Rates()

    def reload(self, limits: UserLimits) -> None:
        """Apply other limits from now on."""
        self._limits = limits

    def applies(self, account: Account) -> bool:
        """Whether a user has limits at all."""
        return account not in self._exempt

    def may_have_waiting(self, account: Account, requests: int, size: int) -> bool:
        """Whether so many requests of a user, of so many bytes, may wait."""
        most, most_bytes = self._limits.limits_user_pending_requests, self._limits.limits_user_pending_bytes
        fits = (not most or requests <= most) and (not most_bytes or size <= most_bytes)
        return fits or not self.applies(account)

    def too_many_waiting(self, account: Account) -> OverQuota:
        """The answer to a request that is too much by ``may_have_waiting``."""
        limits = self._limits
        return self._refuse(
            PENDING,
            f"{name_of(account)} has as much waiting as one user may: {limits.limits_user_pending_requests:,} requests"
            f" (limits.userPendingRequests), {limits.limits_user_pending_bytes:,} bytes (limits.userPendingBytes);"
            " read the answers before you send more",
        )

    def check_rate(self, account: Account, now: int) -> None:
        """Count a request that came at the engine time ``now`` (ms). Raises ``OverQuota`` while they come too fast."""
        rate = self._limits.limits_user_requests_per_sec
        if rate and self.applies(account):
            wait_ms = self._rates.wait_ms(str(account), rate, 1, now)
            if wait_ms:
                raise self._refuse(
                    RATE,
                    f"{name_of(account)} may send {rate:,} requests a second (limits.userRequestsPerSec):"
                    f" try again in {wait_ms} ms",
                )
            self._rates.take(str(account))

    def check_waits(self, account: Account, waits: int) -> None:
        """Raise ``OverQuota`` for a user who waits for messages in ``waits`` requests already, if one more is too
        much."""
        most = self._limits.limits_user_waits
        if most and waits >= most and self.applies(account):
            raise self._refuse(
                WAITS,
                f"{name_of(account)} waits for messages in {waits:,} requests (limits.userWaits): let one end first",
            )

    def check_leases(self, account: Account, leases: int) -> None:
        """Raise ``OverQuota`` for a user who has ``leases``, if one more is too much."""
        most = self._limits.limits_user_leases
        if most and leases >= most and self.applies(account):
            raise self._refuse(
                LEASES,
                f"{name_of(account)} has {leases:,} messages leased (limits.userLeases): settle some first",
            )

    def check_stored(self, account: Account, stored: int, size: int) -> None:
        """Raise ``OverQuota`` for a user of whose messages ``stored`` bytes are kept, if ``size`` more are too much."""
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
