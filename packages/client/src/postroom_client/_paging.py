"""Commands that process many messages page by page, with an optional rate limit."""

import time

from ._compat import monotonic
from .errors import InvalidArgument

#: The largest page that a request may ask for.
_PAGE_LIMIT = 1000
#: Pages a second if a rate is given: small pages spread the messages evenly.
_PAGES_PER_SECOND = 10
#: The field of an answer that counts the messages of the page.
COUNTS = {"purge": "purged", "move": "moved", "reprocess_dlq": "reprocessed", "drop_dlq": "dropped"}


def check_rate(rate):
    """Return ``rate`` if it is a number of messages a second, or None. Raises ``InvalidArgument``."""
    is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
    if rate is not None and not (is_number and 0 < rate < float("inf")):
        raise InvalidArgument("rate must be a number of messages a second above 0, not %r" % (rate,))
    return rate


def pages(send, command, payload, rate=None):
    """Send a command until no message is left that it applies to. Yield each answer, and the count of messages so far.

    ``send`` sends one payload and returns the answer. ``rate`` is in messages a second, on average since the start; a
    dry run ignores it.
    """
    if payload.get("dryRun"):
        rate = None
    limit = _PAGE_LIMIT if rate is None else max(1, min(_PAGE_LIMIT, int(rate / _PAGES_PER_SECOND)))
    payload = dict(payload, limit=limit)
    count, started_at = 0, monotonic()
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
            _sleep_until(started_at + count / float(rate))


def run_pages(send, command, payload):
    """Send a command once if ``payload`` asks for one page, else until all pages are done.

    Return the last answer, with the count of all pages.
    """
    if "limit" in payload or "after" in payload:
        data = send(payload)
        return dict(data, **{COUNTS[command]: data.get(COUNTS[command]) or 0})
    for data, count in pages(send, command, payload):  # at least one
        result = dict(data, **{COUNTS[command]: count})
    return result


def _sleep_until(end):
    while True:
        left_s = end - monotonic()
        if left_s <= 0:
            return
        time.sleep(min(60.0, left_s))
