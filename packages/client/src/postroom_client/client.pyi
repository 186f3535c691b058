import os
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Self

from ._delivery import Delivery

class Request:
    client_id: str
    request_id: str
    file_name: str
    data: bytes
    lock: bool
    sent: bool
    def __init__(
        self,
        client_id: str,
        request_id: str,
        file_name: str,
        data: bytes,
        lock: bool = False,
        sent: bool = False,
    ) -> None: ...

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
    ) -> None: ...
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
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def consume_next(
        self,
        queue: str,
        consumer_id: str | None = None,
        visibility_timeout_sec: float | None = None,
        wait_ms: int | None = None,
        wait_lock: bool | None = True,
        payload_as: str | None = "value",
        timeout: float | None = None,
    ) -> Delivery | None: ...
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
    def status(self, queue: str, timeout: float | None = None) -> dict[str, Any]: ...
    def health(self, timeout: float | None = None) -> dict[str, Any]: ...
    def metrics(self, timeout: float | None = None) -> dict[str, Any]: ...
    def list_queues(
        self,
        limit: int | None = None,
        after: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def list_dlq(
        self,
        queue: str,
        limit: int | None = None,
        after: str | None = None,
        preview_bytes: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def reprocess_dlq(self, message_key: str | Delivery, timeout: float | None = None) -> dict[str, Any]: ...
    def pause(self, queue: str, operation: str | None = None, timeout: float | None = None) -> dict[str, Any]: ...
    def resume(self, queue: str, operation: str | None = None, timeout: float | None = None) -> dict[str, Any]: ...
    def set_policy(self, queue: str, policy: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]: ...
    def get_policy(self, queue: str, timeout: float | None = None) -> dict[str, Any]: ...
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
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    @property
    def client_id(self) -> str: ...
    def call(
        self,
        command: str,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        keep: bool = False,
    ) -> dict[str, Any]: ...
    def prepare(
        self,
        command: str,
        payload: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> Request: ...
    def send(self, request: Request, timeout: float | None = None, keep: bool = False) -> dict[str, Any]: ...
    def is_daemon_running(self) -> bool | None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc_info: object) -> None: ...
