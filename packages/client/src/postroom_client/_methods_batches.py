"""Several messages in one request."""

from ._codec import encode_payload, encoded_length
from ._compat import ordered_dict
from ._delivery import Delivery
from ._methods import Methods, key_and_lease, mark_settled
from ._protocol import BATCH_LIMIT
from .errors import InvalidArgument, PostroomError

#: Bytes of a request that are not its messages: the envelope, the names of the fields.
_ENVELOPE_BYTES = 4096


class BatchMethods(Methods):
    def publish_batch(self, messages, queue=None, timeout=None):
        """Store up to 1,000 messages, each by itself: dicts with the arguments of ``publish``; ``queue`` is for those
        that name none. Returns ``results``: for each what ``publish`` returns, or ``error`` with its code and message.
        """
        items = [_encode_item("publish", message, ("queue",)) for message in _a_list(messages, "messages")]
        if not items:
            return {"results": []}
        return self._send("publish_batch", timeout, queue=queue, messages=items)

    def ack_batch(self, items, consumer_id=None, timeout=None):
        """Settle up to 1,000 messages as done, each by itself: deliveries, or dicts with the arguments of ``ack``.
        Returns ``results``, each empty, or an ``error``."""
        return self._settle("ack", items, consumer_id, timeout)

    def nack_batch(self, items, consumer_id=None, timeout=None):
        """Settle up to 1,000 messages as failed, each by itself: deliveries, or dicts with the arguments of ``nack``.
        Returns ``results``: for each what ``nack`` returns, or an ``error``."""
        return self._settle("nack", items, consumer_id, timeout)

    def ack_and_publish(self, message_key, messages, lease_id=None, consumer_id=None, timeout=None):
        """Settle a message as done and store others, all or nothing: an error names the message that was refused.
        Returns ``results`` as ``publish_batch``."""
        key, lease = key_and_lease(message_key, lease_id)
        items = [_encode_item("publish", message) for message in _a_list(messages, "messages")]
        data = self._send(
            "ack_and_publish",
            timeout,
            message_key,
            message_key=key,
            lease_id=lease,
            consumer_id=consumer_id,
            messages=items,
        )
        return mark_settled(message_key, data)

    def publish_many(self, messages, queue=None, timeout=None):
        """Store any number of messages, in as few ``publish_batch`` as the limits allow; ``timeout`` is that of each.

        Returns the results of all in order. An error that ends it has those of the batches before in ``results``.
        """
        results = []
        room = self.max_request_bytes - _ENVELOPE_BYTES
        chunk, size = [], 0
        for message in messages:
            item = _encode_item("publish", message, ("queue",))
            length = encoded_length(item) + 1
            if chunk and (len(chunk) == BATCH_LIMIT or size + length > room):
                self._publish_chunk(chunk, queue, timeout, results)
                chunk, size = [], 0
            chunk.append(item)
            size += length
        if chunk:
            self._publish_chunk(chunk, queue, timeout, results)
        return results

    def _publish_chunk(self, chunk, queue, timeout, results):
        try:
            results.extend(self._send("publish_batch", timeout, queue=queue, messages=chunk)["results"])
        except PostroomError as error:
            error.results = results
            raise

    def _settle(self, command, items, consumer_id, timeout):
        items = _a_list(items, "items")
        encoded = []
        for item in items:
            if isinstance(item, Delivery) and item.lease_id:  # as it came, it needs no check
                encoded.append(ordered_dict([(u"messageKey", item.message_key), (u"leaseId", item.lease_id)]))
                continue
            options = dict(item) if isinstance(item, dict) else {"message_key": item}
            key, lease = key_and_lease(options.get("message_key"), options.get("lease_id"))
            encoded.append(_encode_item(command, dict(options, message_key=key, lease_id=lease)))
        if not items:
            return {"results": []}
        data = self._send(command + "_batch", timeout, items=encoded, consumer_id=consumer_id)
        for item, result in zip(items, data.get("results") or ()):
            if "error" not in result:
                mark_settled(item.get("message_key") if isinstance(item, dict) else item, None)
        return data


def _a_list(values, name):
    if isinstance(values, (dict, bytes, type(u""))):
        raise InvalidArgument("%s must be a list, not %r" % (name, values))
    return list(values)


def _encode_item(command, options, optional=()):
    """An item of a batch by wire names. ``optional`` are fields that the batch may give instead."""
    if not isinstance(options, dict):
        raise InvalidArgument("an item must be a dict with the arguments of %s, not %r" % (command, options))
    given = dict(options)
    if command == "publish" and "message" not in given:
        raise InvalidArgument("publish needs message")
    missing = [name for name in optional if given.get(name) is None]
    given.update((name, u"") for name in missing)
    payload = encode_payload(command, given)
    return ordered_dict((name, value) for name, value in payload.items() if name not in missing)
