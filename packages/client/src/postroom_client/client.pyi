import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from typing_extensions import Self

from ._delivery import Delivery
from ._processing import ProcessingContext
from ._records import Record
from ._request import Request

class Client:
    ipc_root: str
    timeout: float
    max_request_bytes: int
    def __init__(
        self,
        ipc_root: str | bytes | os.PathLike[str] = "./ipc",
        client_id: str | None = None,
        timeout: float = 30.0,
        polling: bool = False,
        max_request_bytes: int = ...,
        requests_dir: str | bytes = ...,
        responses_dir: str | bytes = ...,
        dead_dir: str | bytes = ...,
        transport: str = ...,
    ) -> None: ...
    @property
    def client_id(self) -> str: ...
    def call(
        self,
        command: str,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        keep: bool = False,
        traceparent: str | None = None,
    ) -> dict[str, Any]: ...
    def prepare(
        self,
        command: str,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        traceparent: str | None = None,
    ) -> Request: ...
    def send(
        self,
        request: Request,
        timeout: float | None = None,
        keep: bool = False,
        give_up: Callable[[], bool] | None = None,
    ) -> dict[str, Any]: ...
    def is_daemon_running(self) -> bool | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def publish(
        self,
        queue: str | None,
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
        retry_limit: int | str | None = None,
        queue_pattern: str | None = None,
        create_with: Mapping[str, Any] | None = None,
        no_priority: bool | None = None,
    ) -> dict[str, Any]: ...
    def draft(
        self,
        queue: str,
        parts: Sequence[str],
        name: str | None = None,
        attributes: Mapping[str, Any] | str | None = None,
        priority: int | None = None,
        no_priority: bool | None = None,
        type: str | None = None,
        ttl_ms: int | None = None,
        ordering_key: str | None = None,
        target_consumer_id: str | None = None,
        create_with: Mapping[str, Any] | None = None,
        must_exist: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def set(
        self,
        message_key: str | Delivery | None,
        message: Any,
        part: str | None = None,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        encoding: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, Any] | str | None = None,
        queue: str | None = None,
        timeout: float | None = None,
        any_holder: bool | None = None,
    ) -> dict[str, Any]: ...
    @overload
    def consume_next(
        self,
        queue: str | None = None,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        wait_lock: bool | None = True,
        payload_as: str | None = "value",
        max: None = None,
        timeout: float | None = None,
        queue_pattern: str | None = None,
        create_with: Mapping[str, Any] | None = None,
        ordered_sec: float | None = None,
        must_exist: bool | None = None,
    ) -> Delivery | None: ...
    @overload
    def consume_next(
        self,
        queue: str | None = None,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        wait_lock: bool | None = True,
        payload_as: str | None = "value",
        *,
        max: int,
        timeout: float | None = None,
        queue_pattern: str | None = None,
        create_with: Mapping[str, Any] | None = None,
        ordered_sec: float | None = None,
        must_exist: bool | None = None,
    ) -> list[Delivery]: ...
    def ack(
        self,
        message_key: str | Delivery | None = None,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        timeout: float | None = None,
        queue: str | None = None,
        any_holder: bool | None = None,
    ) -> dict[str, Any]: ...
    def nack(
        self,
        message_key: str | Delivery | None = None,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        reason: str | None = None,
        requeue: bool | None = None,
        delay_ms: int | None = None,
        timeout: float | None = None,
        queue: str | None = None,
        any_holder: bool | None = None,
    ) -> dict[str, Any]: ...
    def release(
        self,
        message_key: str | Delivery | None = None,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        timeout: float | None = None,
        queue: str | None = None,
        undelivered: bool | None = None,
        any_holder: bool | None = None,
    ) -> dict[str, Any]: ...
    def extend_lease(
        self,
        message_key: str | Delivery | None = None,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        timeout: float | None = None,
        queue: str | None = None,
        any_holder: bool | None = None,
    ) -> dict[str, Any]: ...
    def activate(
        self,
        message_key: str | Delivery | None = None,
        lease_id: str | None = None,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        timeout: float | None = None,
        queue: str | None = None,
        any_holder: bool | None = None,
        payload_as: str | None = "value",
    ) -> Delivery: ...
    def abandon(
        self,
        message_key: str | Delivery,
        lease_id: str | None = None,
        reason: str | None = None,
        timeout: float | None = None,
        if_state: str | None = None,
    ) -> dict[str, Any]: ...
    def publish_batch(
        self, messages: Sequence[Mapping[str, Any]], queue: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]: ...
    def publish_many(
        self, messages: Iterable[Mapping[str, Any]], queue: str | None = None, timeout: float | None = None
    ) -> list[dict[str, Any]]: ...
    def ack_batch(
        self,
        items: Sequence[Delivery | Mapping[str, Any]],
        consumer_id: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def nack_batch(
        self,
        items: Sequence[Delivery | Mapping[str, Any]],
        consumer_id: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def ack_and_publish(
        self,
        message_key: str | Delivery | None,
        messages: Sequence[Mapping[str, Any]],
        lease_id: str | None = None,
        consumer_id: str | None = None,
        timeout: float | None = None,
        queue: str | None = None,
        any_holder: bool | None = None,
    ) -> dict[str, Any]: ...
    def consume(
        self,
        queue: str,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        requeue: bool = True,
        payload_as: str = "value",
    ) -> ProcessingContext: ...
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
    def append(
        self,
        queue: str,
        message: Any = None,
        attributes: str | Mapping[str, str] | None = None,
        encoding: str | None = None,
        content_type: str | None = None,
        messages: Iterable[Mapping[str, Any]] | None = None,
        delay_ms: int | None = None,
        create_with: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def read(
        self,
        queue: str,
        after: int | None = None,
        reader: str | None = None,
        start: str | None = None,
        since_ms: int | None = None,
        max: int | None = None,
        max_bytes: int | None = None,
        exact: bool | None = None,
        if_trimmed: str | None = None,
        wait_ms: int | None = None,
        wait_lock: bool = True,
        payload_as: str = "value",
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def tail(self, queue: str, reader: str | None = None, wait_ms: int = 20000, **options: Any) -> Iterator[Record]: ...
    def move_reader(
        self, queue: str, reader: str, position: int, timeout: float | None = None
    ) -> dict[str, Any]: ...
    def delete_reader(self, queue: str, reader: str, timeout: float | None = None) -> dict[str, Any]: ...
    def list_readers(self, queue: str, timeout: float | None = None) -> dict[str, Any]: ...
    def create_queue(
        self,
        queue: str,
        create_with: Mapping[str, Any] | None = None,
        must_be_new: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def status(self, queue: str, timeout: float | None = None) -> dict[str, Any]: ...
    def list_queues(
        self,
        limit: int | None = None,
        after: str | None = None,
        timeout: float | None = None,
        policies: bool | None = None,
    ) -> dict[str, Any]: ...
    def queue_statistics(
        self, queue: str | None = None, limit: int | None = None, after: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]: ...
    def list_inflight(
        self,
        queue: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def list_consumers(
        self,
        queue: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def browse(
        self,
        queue: str,
        state: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        preview_bytes: int | None = None,
        filter: Mapping[str, Any] | None = None,
        full_bodies: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def get_message(
        self,
        message_key: str | Delivery,
        payload_as: str | None = None,
        events: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def hold(
        self, message_key: str | Delivery, reason: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]: ...
    def unhold(self, message_key: str | Delivery, timeout: float | None = None) -> dict[str, Any]: ...
    def purge(
        self,
        queue: str,
        state: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int | None = None,
        after: str | None = None,
        up_to_event: int | None = None,
        dry_run: bool | None = None,
        timeout: float | None = None,
        reset_tally: bool | None = None,
        message_key: str | Delivery | None = None,
        if_state: str | None = None,
    ) -> dict[str, Any]: ...
    def move(
        self,
        to: str,
        message_key: str | Delivery | None = None,
        queue: str | None = None,
        state: str | None = None,
        filter: Mapping[str, Any] | None = None,
        limit: int | None = None,
        after: str | None = None,
        up_to_event: int | None = None,
        dry_run: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def delete_queue(
        self, queue: str, purge: bool = False, discard: bool | None = None, timeout: float | None = None
    ) -> dict[str, Any]: ...
    def pause(self, queue: str, operation: str | None = None, timeout: float | None = None) -> dict[str, Any]: ...
    def resume(self, queue: str, operation: str | None = None, timeout: float | None = None) -> dict[str, Any]: ...
    def set_policy(
        self,
        queue: str,
        policy: Mapping[str, Any],
        timeout: float | None = None,
        create_with: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...
    def get_policy(
        self,
        queue: str,
        explain: bool | None = None,
        timeout: float | None = None,
        create_with: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]: ...
    def set_policy_patterns(
        self, patterns: Sequence[Mapping[str, Any]], timeout: float | None = None
    ) -> dict[str, Any]: ...
    def get_policy_patterns(self, timeout: float | None = None) -> dict[str, Any]: ...
    def list_dlq(
        self,
        queue: str,
        limit: int | None = None,
        after: str | None = None,
        preview_bytes: int | None = None,
        filter: dict[str, Any] | None = None,
        full_bodies: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def count_dlq(self, queue: str, timeout: float | None = None) -> dict[str, Any]: ...
    def reprocess_dlq(
        self,
        message_key: str | Delivery | None = None,
        queue: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int | None = None,
        after: str | None = None,
        to: str | None = None,
        dry_run: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def reprocess_all(
        self,
        queue: str,
        filter: dict[str, Any] | None = None,
        to: str | None = None,
        rate: float | None = None,
        dry_run: bool | None = None,
        timeout: float | None = None,
    ) -> Iterator[int]: ...
    def drop_dlq(
        self,
        message_key: str | Delivery | None = None,
        queue: str | None = None,
        filter: dict[str, Any] | None = None,
        limit: int | None = None,
        after: str | None = None,
        dry_run: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def drop_all(
        self,
        queue: str,
        filter: dict[str, Any] | None = None,
        rate: float | None = None,
        dry_run: bool | None = None,
        timeout: float | None = None,
    ) -> Iterator[int]: ...
    def quarantine_dlq(
        self,
        message_key: str | Delivery,
        reason: str | None = None,
        quarantined: bool | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
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
    def health(self, timeout: float | None = None) -> dict[str, Any]: ...
    def metrics(self, timeout: float | None = None, format: str | None = None) -> dict[str, Any]: ...
    def drain(self, draining: bool | None = None, timeout: float | None = None) -> dict[str, Any]: ...
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
