from collections.abc import Mapping
from typing import Any

class Request:
    client_id: str
    request_id: str
    file_name: str
    header: bytes
    body: bytes
    lock: bool
    sent: bool
    @property
    def data(self) -> bytes: ...
    def __init__(
        self,
        client_id: str,
        request_id: str,
        file_name: str,
        data: bytes,
        lock: bool = False,
        sent: bool = False,
        body: bytes = b"",
    ) -> None: ...

def create_request(
    client_id: str,
    command: str,
    payload: Mapping[str, Any],
    timeout_s: float,
    max_bytes: int,
    request_id: str | None = None,
    traceparent: str | None = None,
) -> Request: ...
def check_timeout(timeout_s: float) -> float: ...
def create_client_id() -> str: ...
def random_hex(count_bytes: int) -> str: ...
