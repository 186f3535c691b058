from collections.abc import Mapping
from typing import Any

class Delivery:
    message: dict[str, Any]
    lease: dict[str, Any]
    engine_now_ms: int | None
    payload: Any
    name: str | None
    message_id: str
    message_key: str
    queue: str
    attributes: Any
    priority: int | None
    attempt: int
    attempts_left: int | None
    created_at: int
    content_type: str | None
    type: str | None
    version: str | int | float | None
    trace_id: str | None
    traceparent: str | None
    correlation_id: str | None
    reply_to: str | None
    deduplication_key: str | None
    timestamp: str | int | float | None
    target_consumer_id: str | None
    failure: dict[str, Any] | None
    lease_id: str
    consumer_id: str
    lease_until: int
    lease_until_engine_ms: int | None
    phase: str | None
    settled: bool
    lease_lost: bool
    received_at: float
    def __init__(
        self, data: Mapping[str, Any], engine_now_ms: int | None = None, received_at: float | None = None
    ) -> None: ...
    def read(self, data: Mapping[str, Any]) -> None: ...
    @property
    def parts(self) -> list[Part]: ...
    def lease_length(self) -> float: ...

class Part:
    fields: dict[str, Any]
    name: str
    payload: Any
    attributes: Any
    content_type: str | None
    type: str | None
    version: str | int | float | None
    trace_id: str | None
    traceparent: str | None
    correlation_id: str | None
    reply_to: str | None
    deduplication_key: str | None
    timestamp: str | int | float | None
    def __init__(self, fields: Mapping[str, Any]) -> None: ...

class Reject(Exception): ...

class Retry(Exception):
    delay_ms: int | None
    def __init__(self, reason: str = "", delay_ms: int | None = None) -> None: ...

def deliveries_of(data: Mapping[str, Any], max_count: int | None) -> Any: ...
def activated(message: object, data: Mapping[str, Any]) -> Delivery: ...
def split_lease(message: str | Delivery | None, lease_id: str | None = None) -> tuple[Any, str | None]: ...
def mark_settled(message: object, data: Any) -> Any: ...
