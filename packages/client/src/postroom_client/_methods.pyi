from collections.abc import Mapping
from typing import Any

from ._delivery import Delivery

class Methods:
    timeout: float
    def call(
        self,
        command: str,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        keep: bool = False,
    ) -> dict[str, Any]: ...

def check_timeout(timeout_s: float) -> float: ...
def key_and_lease(message: str | Delivery, lease_id: str | None) -> tuple[str, str | None]: ...
