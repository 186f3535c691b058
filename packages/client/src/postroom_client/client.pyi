import os
from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import Self

from ._methods_batches import BatchMethods
from ._methods_daemon import DaemonMethods
from ._methods_deadletters import DeadLetterMethods
from ._methods_messages import MessageMethods
from ._methods_operation import OperationMethods
from ._methods_queues import QueueMethods
from ._methods_schedules import ScheduleMethods
from ._methods_work import WorkMethods

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

class Client(
    MessageMethods,
    BatchMethods,
    WorkMethods,
    QueueMethods,
    OperationMethods,
    DeadLetterMethods,
    ScheduleMethods,
    DaemonMethods,
):
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
