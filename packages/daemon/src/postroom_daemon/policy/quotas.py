"""Quotas: what one account may have at most of pending requests, requests per second, waits, leases and stored bytes.

The settings apply to every account, unless a rule has another number for it. Root and the daemon's own user have none.
Every refusal says what to do, and is counted by quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from ..model.principal import Account, name_of
from .access import Access
from .access_rules import Subject
from .rates import Rates

#: The names of the quotas, by which refusals are counted.
PENDING: Final = "pendingRequests"
RATE: Final = "requestsPerSec"
WAITS: Final = "waits"
LEASES: Final = "leases"
STORED: Final = "storedBytes"
PENDING_BYTES: Final = "pendingBytes"
#: All numbers that a rule may have.
NUMBERS: Final = (PENDING, PENDING_BYTES, RATE, WAITS, LEASES, STORED)
#: Maximum number of accounts whose limits are cached: there may be any number of principals.
CACHE_LIMIT = 4096


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


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Other numbers for some subjects. ``most`` has the maximum of each quota by its name; 0 means no limit."""

    who: tuple[Subject, ...]
    most: Mapping[str, int]

    def to_wire(self) -> dict[str, Any]:
        """As it is written in the configuration."""
        return {"who": [one.text for one in self.who], **self.most}


class _Limits(NamedTuple):
    """What one account may have; 0 means no limit. ``has_own`` says whether a rule is about the account."""

    pending: int
    pending_bytes: int
    rate: int
    waits: int
    leases: int
    stored: int
    has_own: bool = False


class OverQuota(CommandError):
    """A refusal that does not depend on the request: a repeat is decided from scratch."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.QUOTA_EXCEEDED, text)


class Quotas:
    """Checks the quotas of accounts (0: no limit). The first of the ``rules`` that names an account and a quota
    decides; ``access`` says who is named. ``refused`` counts refusals by quota since the start."""

    def __init__(
        self, limits: UserLimits, daemon_uid: int, rules: tuple[QuotaRule, ...] = (), access: Access | None = None
    ) -> None:
        self.refused: Counter[str] = Counter(dict.fromkeys((PENDING, RATE, WAITS, LEASES, STORED), 0))
        self.exempt = (0, daemon_uid)
        """Accounts without quotas."""
        self._rates = Rates()
        self._access = access
        self.reload(limits, rules)

    def reload(self, limits: UserLimits, rules: tuple[QuotaRule, ...] = ()) -> None:
        """Apply other limits."""
        self._default = _Limits(
            limits.limits_user_pending_requests,
            limits.limits_user_pending_bytes,
            limits.limits_user_requests_per_sec,
            limits.limits_user_waits,
            limits.limits_user_leases,
            limits.limits_user_stored_bytes,
        )
        self._rules = rules if self._access else ()
        self._own: dict[Account, _Limits] = {}
        self._seen = 0
        self.limits_rate = self._default.rate > 0 or any(one.most.get(RATE) for one in rules)
        """Whether somebody has a limit of requests per second."""
        self.limits_leases = self._default.leases > 0 or any(one.most.get(LEASES) for one in rules)
        """Whether somebody has a limit of leases."""

    def applies(self, account: Account) -> bool:
        """Whether quotas apply to an account."""
        return account not in self.exempt

    def may_have_pending(self, account: Account, requests: int, size: int) -> bool:
        """Whether an account may have ``requests`` pending requests of ``size`` bytes in total."""
        most = self._of(account)
        fits = (not most.pending or requests <= most.pending) and (not most.pending_bytes or size <= most.pending_bytes)
        return fits or not self.applies(account)

    def too_many_pending(self, account: Account) -> OverQuota:
        """The error for a request that exceeds ``may_have_pending``."""
        most = self._of(account)
        return self._refuse(
            PENDING,
            f"{name_of(account)} has as many pending requests as one user may:"
            f" {most.pending:,} requests ({_key(most, PENDING)}),"
            f" {most.pending_bytes:,} bytes ({_key(most, PENDING_BYTES)});"
            " read the answers before you send more",
        )

    def check_rate(self, account: Account, now: int) -> None:
        """Count a request that arrived at ``now`` (engine ms). Raises ``OverQuota`` if requests arrive too fast."""
        most = self._of(account)
        if most.rate and account not in self.exempt:
            name = str(account)
            wait_ms = self._rates.wait_ms(name, most.rate, 1, now)
            if wait_ms:
                raise self._refuse(
                    RATE,
                    f"{name_of(account)} may send {most.rate:,} requests a second ({_key(most, RATE)}):"
                    f" try again in {wait_ms} ms",
                )
            self._rates.take(name)

    def check_waits(self, account: Account, waits: int) -> None:
        """Raise ``OverQuota`` if an account with ``waits`` waiting requests may not have another one."""
        most = self._of(account)
        if most.waits and waits >= most.waits and self.applies(account):
            raise self._refuse(
                WAITS,
                f"{name_of(account)} waits for messages in {waits:,} requests ({_key(most, WAITS)}): let one end first",
            )

    def check_leases(self, account: Account, leases: int) -> None:
        """Raise ``OverQuota`` if an account with ``leases`` leases may not have another one."""
        most = self._of(account)
        if most.leases and leases >= most.leases and self.applies(account):
            raise self._refuse(
                LEASES,
                f"{name_of(account)} has {leases:,} messages leased ({_key(most, LEASES)}): settle some first",
            )

    def may_store(self, account: Account, stored: int) -> bool:
        """Whether an account may store ``stored`` bytes of messages."""
        most = self._of(account).stored
        return not most or stored <= most or not self.applies(account)

    def check_stored(self, account: Account, stored: int, size: int) -> None:
        """Raise ``OverQuota`` if an account with ``stored`` bytes of messages may not store ``size`` bytes more."""
        if not self.may_store(account, stored + size):
            most = self._of(account)
            raise self._refuse(
                STORED,
                f"{stored:,} bytes of messages by {name_of(account)} are stored, of at most {most.stored:,}"
                f" ({_key(most, STORED)}): publish again once some have been consumed; dead letters count until they"
                " are removed",
            )

    def _of(self, account: Account) -> _Limits:
        access = self._access
        if not self._rules or access is None:
            return self._default
        if self._seen != access.changes:
            self._own.clear()
            self._seen = access.changes
        own = self._own.get(account)
        if own is None:
            if len(self._own) >= CACHE_LIMIT:
                self._own.clear()
            own = self._own[account] = self._found(account, access)
        return own

    def _found(self, account: Account, access: Access) -> _Limits:
        most: dict[str, int] = {}
        for rule in self._rules:
            if access.is_among(account, rule.who):
                most = {**rule.most, **most}
        if not most:
            return self._default
        of_all = self._default
        return _Limits(
            most.get(PENDING, of_all.pending),
            most.get(PENDING_BYTES, of_all.pending_bytes),
            most.get(RATE, of_all.rate),
            most.get(WAITS, of_all.waits),
            most.get(LEASES, of_all.leases),
            most.get(STORED, of_all.stored),
            has_own=True,
        )

    def _refuse(self, kind: str, text: str) -> OverQuota:
        self.refused[kind] += 1
        return OverQuota(text)


def _key(limits: _Limits, name: str) -> str:
    """Where a number is configured, for error texts."""
    setting = f"limits.user{name[0].upper()}{name[1:]}"
    return f"quotas, or {setting}" if limits.has_own else setting
