from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._consuming import Consuming
from ._delivery import Delivery
from ._methods import Methods

class WorkMethods(Methods):
    def consume(
        self,
        queue: str,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        requeue: bool = True,
        payload_as: str = "value",
    ) -> Consuming: ...
    def worker(
        self,
        queue: str,
        handler: Callable[[Delivery], object],
        *,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int = 20000,
        payload_as: str = "value",
        prefetch: int = 1,
        max_messages: int | None = None,
        until_empty: bool = False,
        requeue: bool = True,
        processes: int = 1,
        stop: Callable[[], bool] | None = None,
        stop_signals: Iterable[int] = ...,
    ) -> int: ...
    def request(
        self,
        queue: str,
        body: Any,
        timeout: float | None = None,
        attributes: Mapping[str, Any] | str | None = None,
        priority: int | None = None,
        type: str | None = None,
    ) -> Delivery: ...
    def reply(
        self,
        message: Delivery,
        body: Any,
        attributes: Mapping[str, Any] | str | None = None,
        type: str | None = None,
        ttl_ms: int | None = None,
    ) -> bool: ...
