from collections.abc import Iterator
from typing import Any

from ._delivery import Delivery
from ._methods import Methods

class DeadLetterMethods(Methods):
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
