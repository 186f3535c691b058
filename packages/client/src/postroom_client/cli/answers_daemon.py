"""Answers about the daemon, health and metrics: what matters most comes first."""

from .output import cell, duration, flatten, moment, pairs, size


def _describe_health(data):
    """Return the status, then the reason for each check that is not ok, then the rest."""
    checks = data.get("checks") or {}
    head = [(u"status", cell(data.get("status")))]
    for name in sorted(checks):
        head += [(cell(name), why) for why in _faults(name, checks[name])]
    disk = checks.get("disk") or {}
    body = [
        (u"checked", u", ".join(cell(name) for name in sorted(checks)) or u"-"),
        (u"disk", u"%s free, %s must stay free" % (size(disk.get("freeBytes")), size(disk.get("reserveBytes")))),
        (u"node", cell(data.get("nodeId"))),
        (u"backend", cell(data.get("backend"))),
        (u"durability", cell(data.get("durability"))),
        (u"daemon", u"%s, protocol %s" % (cell(data.get("version")), cell(data.get("protocolVersion")))),
        (u"clock", moment(data.get("timestamp"))),
    ]
    return pairs(head) + u"\n\n" + pairs(body + _rest(data, _HEALTH_SHOWN))


_HEALTH_SHOWN = (
    "status checks nodeId backend durability version protocolVersion timestamp asOfEvent engineNowMs".split()
)


def _faults(name, check):
    missing = check.get("missingEvents")
    if missing:
        yield u"events are missing: " + u", ".join(u"%s to %s" % (first, last) for first, last in missing)
    if check.get("ok"):
        return
    if check.get("error"):
        yield u"not ok: " + cell(check["error"])
    elif name == "disk":
        yield u"not ok: %s free, less than the %s that must stay free: publishes are refused" % (
            size(check.get("freeBytes")),
            size(check.get("reserveBytes")),
        )
    else:
        yield u"not ok"


def _describe_metrics(data):
    """Return the metrics in sections; those in the format of Prometheus unchanged."""
    if "text" in data:
        return data["text"].rstrip(u"\n")
    requests, mailbox, timing = (data.get(name) or {} for name in ("requests", "mailbox", "timing"))
    rates, lease, groups = (data.get(name) or {} for name in ("rates", "leaseToAckMs", "groups"))
    codes, errors, commands = (data.get(name) or {} for name in ("errorCodes", "errors", "commands"))
    started_ms = None
    if isinstance(data.get("timestamp"), int) and isinstance(data.get("uptimeMs"), int):
        started_ms = data["timestamp"] - data["uptimeMs"]
    sections = [
        (
            u"since %s (%s)" % (moment(started_ms), duration(data.get("uptimeMs"))),
            [(u"requests", cell(requests.get("total")))]
            + [(u"done", cell(requests.get("success"))), (u"errors", cell(requests.get("error")))]
            + [(u"rejected", cell(mailbox.get("setAside")))],
        ),
        (u"errors by code", _counts(codes)),
        (u"rates, last 60 s", [(cell(name), u"%s/s" % cell(rates[name])) for name in _ordered(rates)]),
        (
            u"mailbox, now",
            [(u"pending requests", cell(mailbox.get("waiting"))), (u"long polls", cell(mailbox.get("parked")))]
            + [(u"files in dead/", cell(mailbox.get("dead")))],
        ),
        (
            u"time per request",
            [(u"mean", duration(timing.get("avgProcessingMs")))]
            + [(u"last", duration(timing.get("lastProcessingMs")))]
            + [(u"total", duration(timing.get("totalProcessingMs")))],
        ),
        (
            u"time from lease to ack (%s)" % cell(lease.get("count")),
            [(cell(name), duration(lease.get(name))) for name in ("mean", "p50", "p90", "p99", "max")]
            if lease.get("count")
            else [],
        ),
        (u"requests by command", [(cell(name), cell(commands[name])) for name in _ordered(commands)]),
        (u"errors by kind", _counts(errors)),
        (
            u"groups (requests that shared a sync)",
            [(u"groups", cell(groups.get("count"))), (u"requests", cell(groups.get("requests")))]
            + [(u"events", cell(groups.get("events"))), (u"largest", cell(groups.get("maxRequests")))],
        ),
        (u"other", _rest(data, _METRICS_SHOWN)),
    ]
    texts = []
    for title, rows in sections:
        if rows:
            texts.append(title + u"\n" + pairs([(u"  " + name, value) for name, value in rows]))
    return u"\n\n".join(texts)


_METRICS_SHOWN = (
    "timestamp uptimeMs requests commands errors errorCodes timing leaseToAckMs rates groups mailbox asOfEvent "
    "engineNowMs".split()
)
_ORDER = ("publish", "consume", "ack", "nack", "dlq", "status", "health")


def _ordered(names):
    """Return names in the order of a message's life; those that are not listed there follow."""
    return [name for name in _ORDER if name in names] + sorted(set(names) - set(_ORDER))


def _counts(counts):
    """Return the counts that are not zero, the highest first."""
    rows = sorted((name for name in counts if counts[name]), key=lambda name: (-counts[name], name))
    return [(cell(name), cell(counts[name])) for name in rows]


def _rest(data, shown):
    """Return the fields that have no place above, such as those of a newer daemon."""
    rest = {name: value for name, value in data.items() if name not in shown}
    return [(cell(name), cell(value)) for name, value in flatten(rest)]


DESCRIBERS = {"health": _describe_health, "metrics": _describe_metrics}
