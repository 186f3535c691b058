"""What the command line prints of dead letters for people: how many, why, and whether it goes on."""

from ._cli_output import cell, duration, flatten, moment, pairs

_DIED = (("diedLastHour", u"died in an hour"), ("diedLastDay", u"died in a day"), ("diedTotal", u"died ever"))


def describe_count(data):
    """The reply to count_dlq."""
    return pairs([(u"dead letters of", cell(data.get("queue")))] + _rows(data))


def describe_address(data):
    """The reply to status for a name that addresses dead letters."""
    letters = data["deadLetters"]
    queues = u", ".join(cell(queue) for queue in letters.get("queues") or ())
    rows = [(u"queue", cell(data.get("queue")) + u" (addresses dead letters)"), (u"dead letters of", queues)]
    return pairs(rows + _rows(letters))


def _rows(letters):
    rows = [(u"count", letters.get("count"))] + flatten(letters.get("byReason") or {})
    rows += [(label, letters.get(name)) for name, label in _DIED]
    rows = [(cell(label), cell(value)) for label, value in rows]
    age_ms = letters.get("newestAgeMs")
    newest = u"-" if age_ms is None else u"%s (%s ago)" % (moment(letters.get("newestAt")), duration(age_ms))
    return rows + [(u"oldest", duration(letters.get("oldestAgeMs"))), (u"newest", newest)]
