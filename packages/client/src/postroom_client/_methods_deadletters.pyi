from typing import Any

from ._delivery import Delivery
from ._methods import Methods

class DeadLetterMethods(Methods):
    def list_dlq(
        self,
        queue: str,
        limit: int | None = None,
        after: str | None = None,
        preview_bytes: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def reprocess_dlq(self, message_key: str | Delivery, timeout: float | None = None) -> dict[str, Any]: ...
