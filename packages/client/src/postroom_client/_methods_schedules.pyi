from collections.abc import Mapping
from typing import Any

from ._methods import Methods

class ScheduleMethods(Methods):
    def set_schedule(
        self,
        name: str,
        queue: str,
        cron: str,
        timezone: str | None = None,
        missed: str | None = None,
        message: Any = None,
        attributes: str | Mapping[str, Any] | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        ordering_key: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def delete_schedule(self, name: str, timeout: float | None = None) -> dict[str, Any]: ...
    def list_schedules(
        self, limit: int | None = None, after: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]: ...
