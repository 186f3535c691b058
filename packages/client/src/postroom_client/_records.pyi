from collections.abc import Iterable, Iterator, Mapping
from typing import Any

class Record:
    fields: dict[str, Any]
    position: int
    wall_ms: int
    payload: Any
    attributes: Any
    content_type: str | None
    def __init__(self, fields: dict[str, Any]) -> None: ...

def with_records(data: dict[str, Any]) -> dict[str, Any]: ...
def encode_records(messages: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None: ...
def tail(client: Any, queue: str, reader: str | None, options: Mapping[str, Any]) -> Iterator[Record]: ...
