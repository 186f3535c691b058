"""Page after page of a command that does many messages, at most so many a second."""

import time

from ._compat import monotonic
from .errors import InvalidArgument

#: The largest page that a request may ask for.
_PAGE = 1000
#: Pages a second where a rate is given: what comes back does not come in one burst.
_PAGES_A_SECOND = 10
#: The name under which a reply says how many messages it did.
COUNTS = {"purge": "purged", "move": "moved", "reprocess_dlq": "reprocessed", "drop_dlq": "dropped"}


def check_rate(rate):
    """``rate`` if it is a number of messages a second, or None. Raises ``InvalidArgument``."""
    is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    if rate is not None and not (is_number and 0 < rate < float("inf")):
        raise InvalidArgument("rate must be a number of messages a second above 0, not %r" % (rate,))
    return rate


def pages(send, command, payload, rate=None):
    """Send a command again and again until nothing is left of what it means: yields after each page the reply's data,
    and how many messages it were so far. ``send`` sends one payload.

    ``rate``: messages a second, on the average since the beginning. A dry run is not held up.
    """
    if payload.get("dryRun"):
        rate = None
    size = _PAGE if rate is None else max(1, min(_PAGE, int(rate / _PAGES_A_SECOND)))
    payload = dict(payload, limit=size)
    count, begun = 0, monotonic()
    while True:
        data = send(payload)
        count += data.get(COUNTS[command]) or 0
        yield data, count
        if not data.get("next"):
            return
        payload = dict(payload, after=data["next"])
        if "upToEvent" in data:
            payload["upToEvent"] = data["upToEvent"]
        if rate is not None:
            _sleep_until(begun + count / float(rate))


def _sleep_until(end):
    while True:
        left = end - monotonic()
        if left <= 0:
            return
        time.sleep(min(60.0, left))
