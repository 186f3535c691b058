from collections.abc import Mapping
from typing import Any, overload

from ._delivery import Delivery
from ._methods import Methods

class MessageMethods(Methods):
    def publish(
        self,
        queue: str,
        message: Any,
        attributes: Mapping[str, Any] | str | None = None,
        priority: int | None = None,
        delay_ms: int | None = None,
        target_consumer_id: str | None = None,
        encoding: str | None = None,
        content_type: str | None = None,
        type: str | None = None,
        version: str | float | None = None,
        trace_id: str | None = None,
        deduplication_key: str | None = None,
        timestamp: str | float | None = None,
        traceparent: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        ttl_ms: int | None = None,
        deliver_at: int | None = None,
        ordering_key: str | None = None,
        target_fallback_ms: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    @overload
    def consume_next(
        self,
        queue: str,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        wait_lock: bool | None = True,
        payload_as: str | None = "value",
        max: None = None,
        timeout: float | None = None,
    ) -> Delivery | None: ...
    @overload
    def consume_next(
        self,
        queue: str,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        wait_lock: bool | None = True,
        payload_as: str | None = "value",
        *,
        max: int,
        timeout: float | None = None,
    ) -> list[Delivery]: ...
    def ack(
        self,
        message_key: str | Delivery,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def nack(
        self,
        message_key: str | Delivery,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        reason: str | None = None,
        requeue: bool | None = None,
        delay_ms: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def release(
        self,
        message_key: str | Delivery,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def extend_lease(
        self,
        message_key: str | Delivery,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
