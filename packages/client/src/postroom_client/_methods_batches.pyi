from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._delivery import Delivery
from ._methods import Methods

class BatchMethods(Methods):
    def publish_batch(
        self, messages: Sequence[Mapping[str, Any]], queue: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]: ...
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
        message_key: str | Delivery,
        messages: Sequence[Mapping[str, Any]],
        lease_id: str | None = None,
        consumer_id: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]: ...
    def publish_many(
        self, messages: Iterable[Mapping[str, Any]], queue: str | None = None, timeout: float | None = None
    ) -> list[dict[str, Any]]: ...
