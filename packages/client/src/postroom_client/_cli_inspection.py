"""The replies of those commands that look into queues and operate them, as the text that people read."""

from ._cli_output import cell, duration, moment, pairs, quote, table


def _more(data, command):
    return u"\nmore: postroom %s --after %s" % (command, quote(cell(data["next"]))) if data.get("next") else u""


def _of_queue(data, word):
    return u"%s --queue %s" % (word, quote(cell(data["queue"]))) if data.get("queue") else word


def _left(row, name, data):
    end_ms, now_ms = row.get(name), data.get("engineNowMs")
    return duration(end_ms - now_ms) if isinstance(end_ms, int) and isinstance(now_ms, int) else u"-"


def describe_browse(data):
    """A line for each message."""
    rows = []
    for one in data.get("messages") or []:
        body = one.get("payload", one.get("preview"))
        row = [cell(one.get(name)) for name in ("messageKey", "priority", "attempt", "bytes")]
        rows.append(row + [duration(one.get("ageMs")), u"body lost" if one.get("bodyLost") else cell(body)])
    if not rows:
        return (u"nothing on this page" if data.get("next") else u"no messages") + _browse_on(data)
    return table([u"message key", u"priority", u"attempt", u"bytes", u"age", u"body"], rows) + _browse_on(data)


def _browse_on(data):
    return _more(data, _of_queue(data, u"browse") + u" --state " + quote(cell(data.get("state"))))


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
    return u", ".join(words)


def describe_inflight(data):
    """A line for each lease."""
    rows = [
        [cell(one.get(name)) for name in ("messageKey", "queue", "consumerId", "attempt")]
        + [u"overdue" if one.get("overdue") else _left(one, "leaseUntilEngineMs", data)]
        for one in data.get("messages") or []
    ]
    if not rows:
        return u"nothing is in flight"
    headers = [u"message key", u"queue", u"consumer", u"attempt", u"lease left"]
    return table(headers, rows) + _more(data, _of_queue(data, u"inflight"))


def describe_consumers(data):
    """A line for each consumer of a queue."""
    now_ms = data.get("engineNowMs")
    rows = []
    for one in data.get("consumers") or []:
        asked = one.get("lastAskedEngineMs")
        ago = duration(now_ms - asked) if isinstance(asked, int) and isinstance(now_ms, int) else u"-"
        rows.append([cell(one.get(name)) for name in ("queue", "consumerId", "inflight", "delivered")] + [ago])
    if not rows:
        return u"nobody has consumed since the daemon started"
    return table([u"queue", u"consumer", u"inflight", u"delivered", u"asked ago"], rows) + _more(data, u"consumers")


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
