from collections.abc import Callable
from typing import Any

from ._delivery import Delivery

REASON_LIMIT: int

class CannotProcess(BaseException): ...

class ProcessingContext:
    def __init__(
        self,
        client: Any,
        queue: str | bytes,
        requeue: bool,
        consume: Callable[[], Delivery | None],
        payload_as: str | None,
        visibility_timeout_sec: float | None,
    ) -> None: ...
    def __enter__(self) -> Delivery | None: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool: ...

def activate(
    client: Any, delivery: Delivery, payload_as: str | None, visibility_timeout_sec: float | None
) -> None: ...
def settle(
    client: Any, delivery: Delivery, queue: str | bytes, error: BaseException | None = None, requeue: bool = True
) -> None: ...
def until_answered(client: Any, delivery: Delivery, send: Callable[[], dict[str, Any]]) -> dict[str, Any]: ...
def reason_of(error: BaseException) -> str: ...
def shorten_reason(text: str | bytes) -> str: ...
