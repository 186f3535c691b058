from collections.abc import Mapping
from typing import Any

from ._delivery import Delivery
from ._methods import Methods

class OperationMethods(Methods):
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
    def delete_queue(self, queue: str, purge: bool = False, timeout: float | None = None) -> dict[str, Any]: ...
    def drain(self, draining: bool | None = None, timeout: float | None = None) -> dict[str, Any]: ...
