"""Records of logs, and following a log."""

from ._batches import encode_items
from ._codec import decode_body


class Record(object):
    """A record of a log: its ``position``, the Unix time at which it was appended (``wall_ms``), ``payload`` as that
    of a ``Delivery``, ``attributes`` (a dict of strings) and ``content_type`` (None if it has none). ``fields`` is the
    object of the answer."""

    __slots__ = ("attributes", "content_type", "fields", "payload", "position", "wall_ms")

    def __init__(self, fields):
        self.fields = fields
        self.position, self.wall_ms = fields.get("position"), fields.get("wallMs")
        self.attributes, self.content_type = fields.get("attributes"), fields.get("contentType")
        self.payload = decode_body(fields) if "encoding" in fields else fields.get("payload")

    def __repr__(self):
        return "<Record at %s>" % self.position


def with_records(data):
    """Return the answer to read with its ``records`` as ``Record``."""
    data["records"] = [Record(one) for one in data.get("records") or ()]
    return data


def encode_records(messages):
    """Return dicts with the arguments of ``append`` as items. Raises ``InvalidArgument``."""
    return None if messages is None else encode_items("append", messages, ("queue",))


def tail(client, queue, reader, options):
    """Yield records of a log without end; see ``Client.tail``."""
    place = dict(options)
    if reader is not None:
        place["reader"] = reader
    while True:
        data = client.read(queue, **place)
        for record in data["records"]:
            yield record
        if data["records"] and reader is not None:
            client.move_reader(queue, reader, data["last"])
        elif not data["records"] and not place.get("wait_ms"):
            return
        for name in ("reader", "start", "since_ms", "exact"):
            place.pop(name, None)
        place["after"] = data["last"]
