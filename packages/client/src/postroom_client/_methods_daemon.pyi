from collections.abc import Mapping, Sequence
from typing import Any

from ._methods import Methods

class DaemonMethods(Methods):
    def health(self, timeout: float | None = None) -> dict[str, Any]: ...
    def metrics(self, timeout: float | None = None, format: str | None = None) -> dict[str, Any]: ...
    def read_state(
        self,
        part: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def import_state(
        self,
        engine_ms: int,
        wall_ms: int,
        queues: Sequence[Mapping[str, Any]] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        facts: Sequence[Mapping[str, Any]] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
