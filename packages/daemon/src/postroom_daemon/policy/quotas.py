"""What one user may have of the daemon: requests that wait, and how fast they come; leases; stored messages.

Identity is the uid; the daemon's own user and root may have anything.

Every refusal says what to do, and is counted by what was too much.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

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

    def applies(self, uid: int) -> bool:
        """Whether a user has limits at all."""
        return uid not in self._exempt

    def may_have_waiting(self, uid: int, requests: int, size: int) -> bool:
        """Whether so many requests of a user, of so many bytes, may wait."""
        most, most_bytes = self._limits.limits_user_pending_requests, self._limits.limits_user_pending_bytes
        fits = (not most or requests <= most) and (not most_bytes or size <= most_bytes)
        return fits or not self.applies(uid)

    def too_many_waiting(self, uid: int) -> OverQuota:
        """The answer to a request that is too much by ``may_have_waiting``."""
        limits = self._limits
        return self._refuse(
            PENDING,
            f"uid {uid} has as much waiting as one user may: {limits.limits_user_pending_requests:,} requests"
            f" (limits.userPendingRequests), {limits.limits_user_pending_bytes:,} bytes (limits.userPendingBytes);"
            " read the answers before you send more",
        )

    def check_rate(self, uid: int, now: int) -> None:
        """Count a request that came at the engine time ``now`` (ms). Raises ``OverQuota`` while they come too fast."""
        rate = self._limits.limits_user_requests_per_sec
        if rate and self.applies(uid):
            wait_ms = self._rates.wait_ms(str(uid), rate, 1, now)
            if wait_ms:
                raise self._refuse(
                    RATE,
                    f"uid {uid} may send {rate:,} requests a second (limits.userRequestsPerSec):"
                    f" try again in {wait_ms} ms",
                )
            self._rates.take(str(uid))

    def check_waits(self, uid: int, waits: int) -> None:
        """Raise ``OverQuota`` for a user who waits for messages in ``waits`` requests already, if one more is too
        much."""
        most = self._limits.limits_user_waits
        if most and waits >= most and self.applies(uid):
            raise self._refuse(
                WAITS,
                f"uid {uid} waits for messages in {waits:,} requests (limits.userWaits): let one end before the next",
            )

    def check_leases(self, uid: int, leases: int) -> None:
        """Raise ``OverQuota`` for a user who has ``leases``, if one more is too much."""
        most = self._limits.limits_user_leases
        if most and leases >= most and self.applies(uid):
            raise self._refuse(
                LEASES,
                f"uid {uid} has {leases:,} messages leased (limits.userLeases): settle some before you take more",
            )

    def check_stored(self, uid: int, stored: int, size: int) -> None:
        """Raise ``OverQuota`` for a user of whose messages ``stored`` bytes are kept, if ``size`` more are too much."""
        most = self._limits.limits_user_stored_bytes
        if most and stored + size > most and self.applies(uid):
            raise self._refuse(
                STORED,
                f"{stored:,} bytes of messages by uid {uid} are stored, of at most {most:,} (limits.userStoredBytes):"
                " publish again once some have been consumed; dead letters count until they are removed",
            )

    def _refuse(self, kind: str, text: str) -> OverQuota:
        self.refused[kind] += 1
        return OverQuota(text)
