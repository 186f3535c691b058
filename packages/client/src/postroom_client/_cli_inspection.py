"""The replies of those commands that look into queues and operate them, as the text that people read."""

import pwd

from ._cli_output import cell, moment, pairs, quote, short_duration, table


def _left(row, name, data):
    end_ms, now_ms = row.get(name), data.get("engineNowMs")
    return short_duration(end_ms - now_ms) if isinstance(end_ms, int) and isinstance(now_ms, int) else u"-"


def describe_browse(data):
    """A line for each message."""
    rows = []
    for one in data.get("messages") or []:
        body = one.get("payload", one.get("preview"))
        row = [cell(one.get(name)) for name in ("messageKey", "priority", "attempt", "bytes")]
        rows.append(row + [short_duration(one.get("ageMs")), u"body lost" if one.get("bodyLost") else cell(body)])
    if not rows:
        return u"nothing on this page" if data.get("next") else u"no messages"
    return table([u"message key", u"prio", u"attempt", u"bytes", u"age", u"body"], rows)


def describe_message(data):
    """What a message is, and a line for each thing that happened to it."""
    rows = [(u"message key", cell(data.get("messageKey"))), (u"state", cell(data.get("state")))]
    message = data.get("message") or {}
    rows += [(cell(name), cell(message[name])) for name in sorted(message) if name not in ("messageKey", "state")]
    text = pairs(rows)
    events = data.get("events") or []
    if events:
        lines = []
        for event in events:
            lines.append([cell(event.get("id")), moment(event.get("wallMs")), cell(event.get("type")), _told(event)])
        text += u"\n\n" + table([u"event", u"time", u"what", u"more"], lines)
    if data.get("cut"):
        text += u"\nolder events are not shown (complete from event %s)" % cell(data.get("completeFrom"))
    return text


def _told(event):
    words = []
    for name in ("consumer", "attempt", "to", "reason", "dueEngineMs"):
        if name in event:
            words.append(u"%s %s" % (name, cell(event[name])))
    failure = event.get("failure")
    if failure:
        words.append(u"%s: %s" % (cell(failure.get("reasonCode")), cell(failure.get("reasonMessage"))))
    if event.get("by"):
        words.append(u"by %s" % cell(event["by"].get("client")))
        if event["by"].get("traceparent"):
            words.append(u"trace %s" % cell(event["by"]["traceparent"][3:35]))
    return u", ".join(words)


def describe_inflight(data):
    """A line for each lease."""
    now_ms, rows = data.get("engineNowMs"), []
    for one in data.get("messages") or []:
        since_ms = one.get("leasedAtEngineMs")
        held = now_ms - since_ms if isinstance(since_ms, int) and isinstance(now_ms, int) else None
        row = [cell(one.get("messageKey")), cell(one.get("queue")), cell(one.get("consumerId")), _user(one.get("uid"))]
        row.append(cell(one.get("attempt")))
        row += [short_duration(held), u"overdue" if one.get("overdue") else _left(one, "leaseUntilEngineMs", data)]
        rows.append(row + [u"dead" if one.get("state") == "dead" else u"-"])
    if not rows:
        return u"nothing on this page" if data.get("next") else u"nothing is leased"
    return table([u"message key", u"queue", u"consumer", u"user", u"attempt", u"held", u"left", u"state"], rows)


def _user(uid):
    """The name of a user of this machine."""
    try:
        return cell(pwd.getpwuid(uid).pw_name)
    except (KeyError, TypeError, OverflowError):
        return cell(uid)


def describe_consumers(data):
    """A line for each consumer of a queue."""
    now_ms = data.get("engineNowMs")
    rows = []
    for one in data.get("consumers") or []:
        asked = one.get("lastAskedEngineMs")
        ago = short_duration(now_ms - asked) if isinstance(asked, int) and isinstance(now_ms, int) else u"-"
        rows.append([cell(one.get(name)) for name in ("queue", "consumerId", "inflight", "delivered")] + [ago])
    if not rows:
        return u"nobody has consumed since the daemon started"
    return table([u"queue", u"consumer", u"held", u"delivered", u"asked ago"], rows)


def describe_held(data):
    """The state that a message has now."""
    if data.get("state") == "delayed":
        return u"delayed: delivered in %s" % _left(data, "availableAtEngineMs", data)
    return cell(data.get("state"))


def _go_on(data):
    """How one goes on. Not as a command: without the filter, which no reply has, that would mean other messages."""
    if not data.get("next"):
        return u""
    return u"\nmore: the same with --after %s --up-to-event %s" % (quote(cell(data["next"])), cell(data["upToEvent"]))


def describe_purge(data):
    """How many messages went."""
    word = u"would be removed" if data.get("dryRun") else u"removed"
    told = u"%s: %s %s" % (cell(data.get("queue")), cell(data.get("purged")), word)
    return told + _go_on(data)


def describe_move(data):
    """How many messages went where."""
    word = u"would move" if data.get("dryRun") else u"moved"
    shown = [cell(data.get(name)) for name in ("queue", "moved", "to")]
    told = u"%s: %s %s to %s" % (shown[0], shown[1], word, shown[2])
    return told + _go_on(data)


def describe_delete(data):
    """That a queue is gone."""
    return u"%s: deleted" % cell(data.get("queue"))


def describe_drain(data):
    """Whether new messages are taken."""
    return u"draining: no new messages are taken" if data.get("draining") else u"not draining: messages are taken"


DESCRIBERS = {
    "browse": describe_browse,
    "get_message": describe_message,
    "list_inflight": describe_inflight,
    "list_consumers": describe_consumers,
    "hold": describe_held,
    "unhold": describe_held,
    "purge": describe_purge,
    "move": describe_move,
    "delete_queue": describe_delete,
    "drain": describe_drain,
}
