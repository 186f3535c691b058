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
def mark_settled(message: str | Delivery, data: dict[str, Any]) -> dict[str, Any]: ...
def deliveries_of(data: Mapping[str, Any], most: int | None) -> Any: ...
def cut_wait(client: Methods, wait_ms: int | None, timeout: float | None) -> tuple[int | None, float | None]: ...
