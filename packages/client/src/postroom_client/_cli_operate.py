"""``postroom purge`` and ``move``: page after page, and a question before what cannot be undone."""

import sys

from ._cli_output import cell, write


def operate(call, payload, ask):
    """Send a command until all is done, or one page if one was asked for. The reply's data with the sum of all pages;
    None if whoever was asked does not want it. ``call`` sends one payload."""
    if ask and not payload.get("dryRun"):
        expected = _all(call, dict(payload, dryRun=True))
        found = (_count(expected), cell(expected.get("queue")))
        write(u"%d messages will be removed from %s. Type yes to go on:" % found, sys.stderr)
        if sys.stdin.readline().strip().lower() != "yes":
            return None
    return _all(call, payload)


def _all(call, payload):
    one_page = "limit" in payload or "after" in payload
    payload = dict(payload) if one_page else dict(payload, limit=1000)
    count = 0
    while True:
        data = call(payload)
        count += _count(data)
        if one_page or not data.get("next"):
            return dict(data, **{_counted(data): count})
        payload = dict(payload, after=data["next"], upToEvent=data["upToEvent"])


def _counted(data):
    return "moved" if "moved" in data else "purged"


def _count(data):
    return data.get(_counted(data)) or 0
