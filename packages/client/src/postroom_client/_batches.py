"""Items of requests that carry several messages."""

from ._codec import encode_payload, encoded_length
from ._delivery import Delivery, split_lease
from ._protocol import BATCH_LIMIT
from .errors import InvalidArgument

#: Bytes of a request that are not its messages: the envelope, the names of the fields.
_ENVELOPE_BYTES = 4096


def encode_messages(messages, queue_required=False):
    """Return dicts with the arguments of ``publish`` as items. Raises ``InvalidArgument``."""
    return encode_items("publish", messages, () if queue_required else ("queue",))


def encode_items(command, messages, replaced):
    """Return dicts with the arguments of ``command`` as items. Raises ``InvalidArgument``."""
    return [_encode_item(command, message, replaced) for message in _check_list(messages, "messages")]


def split_messages(messages, max_request_bytes):
    """Yield the items of any number of messages in lists that each fit one request. Raises ``InvalidArgument``."""
    limit_bytes = max_request_bytes - _ENVELOPE_BYTES
    items, count_bytes = [], 0
    for message in messages:
        item = _encode_item("publish", message, ("queue",))
        item_bytes = encoded_length(item) + 1
        if items and (len(items) == BATCH_LIMIT or count_bytes + item_bytes > limit_bytes):
            yield items
            items, count_bytes = [], 0
        items.append(item)
        count_bytes += item_bytes
    if items:
        yield items


def settle_batch(send, command, deliveries):
    """Send deliveries, or dicts with the arguments of ``command`` ("ack" or "nack"), as items of one request.

    ``send`` sends the items and returns the answer. Deliveries that were settled are marked.
    """
    deliveries = _check_list(deliveries, "items")
    if not deliveries:
        return {"results": []}
    data = send([_encode_settlement(command, one) for one in deliveries])
    for one, result in zip(deliveries, data.get("results") or ()):
        if "error" not in result:
            message = one.get("message_key") if isinstance(one, dict) else one
            if isinstance(message, Delivery):
                message.settled = True
    return data


def _encode_settlement(command, item):
    if isinstance(item, Delivery) and item.lease_id:  # these values come from the daemon: they need no check
        return {u"messageKey": item.message_key, u"leaseId": item.lease_id}
    options = dict(item) if isinstance(item, dict) else {"message_key": item}
    key, lease = split_lease(options.get("message_key"), options.get("lease_id"))
    return _encode_item(command, dict(options, message_key=key, lease_id=lease))


def _check_list(values, name):
    if isinstance(values, (dict, bytes, type(u""))):
        raise InvalidArgument("%s must be a list, not %r" % (name, values))
    return list(values)


def _encode_item(command, options, replaced=()):
    """Return an item with the wire's field names. ``replaced`` are options that the request may give instead."""
    if not isinstance(options, dict):
        raise InvalidArgument("an item must be a dict with the arguments of %s, not %r" % (command, options))
    if command in ("publish", "append") and "message" not in options:
        raise InvalidArgument("%s needs message" % command)
    return encode_payload(command, options, replaced)
