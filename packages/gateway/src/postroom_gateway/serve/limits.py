"""What peers may occupy, and how fast they may ask."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, Protocol

#: Most callers whose rates are remembered: the ones that asked last.
_CALLERS_LIMIT: Final = 4096


class LimitSettings(Protocol):
    """The settings of section ``limits``."""

    @property
    def connections(self) -> int: ...
    @property
    def peer_connections(self) -> int: ...
    @property
    def body_bytes(self) -> int: ...
    @property
    def buffer_bytes(self) -> int: ...
    @property
    def requests_per_second(self) -> float: ...
    @property
    def peer_requests(self) -> int: ...
    @property
    def header_bytes(self) -> int: ...
    @property
    def header_seconds(self) -> float: ...
    @property
    def body_seconds(self) -> float: ...
    @property
    def idle_seconds(self) -> float: ...
    @property
    def read_seconds(self) -> float: ...


class Limits:
    """Counts what all doors together occupy. ``settings`` may be replaced at a reload."""

    def __init__(self, settings: LimitSettings) -> None:
        self.settings = settings
        self.connections = 0
        #: Bytes of requests that are being received or answered.
        self.buffered_bytes = 0
        #: Those of requests of streams that are being executed and do not wait for messages: they will be free.
        self.executed_bytes = 0
        self._by_address: Counter[str] = Counter()
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, address: str) -> bool:
        """Count a connection; False if there are too many, of all or from this address."""
        if self.connections >= self.settings.connections or self._by_address[address] >= self.settings.peer_connections:
            return False
        self.connections += 1
        self._by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """A connection that was admitted has ended."""
        self.connections -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def may_ask(self, caller: str, now_s: float) -> bool:
        """Count a request of a principal or an address; False if it asks too fast. It may ask for a second's worth at
        once."""
        if not self.settings.requests_per_second:
            return True
        tokens = self._tokens(caller, now_s)
        allowed = tokens >= 1.0
        self._remember(caller, tokens - 1.0 if allowed else tokens, now_s)
        return allowed

    def delay_s(self, caller: str, now_s: float) -> float:
        """Count a request that is executed in any case; how long nothing more may be read from its caller."""
        rate = self.settings.requests_per_second
        if not rate:
            return 0.0
        tokens = self._tokens(caller, now_s) - 1.0
        self._remember(caller, tokens, now_s)
        return max(0.0, -tokens / rate)

    def _tokens(self, caller: str, now_s: float) -> float:
        rate = self.settings.requests_per_second
        most = max(rate, 1.0)
        tokens, then_s = self._rates.pop(caller, (most, now_s))
        return min(most, tokens + (now_s - then_s) * rate)

    def _remember(self, caller: str, tokens: float, now_s: float) -> None:
        self._rates[caller] = (tokens, now_s)
        if len(self._rates) > _CALLERS_LIMIT:
            self._rates.popitem(last=False)
