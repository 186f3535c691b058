"""Answers as text for people, a function for each command; here those about single messages."""

from .._codec import Binary, decode_body
from . import answers_daemon, answers_queues
from .output import cell, duration, flatten, moment, pairs, remaining, short_duration, table


def describe(command, data):
    """Return the text of an answer to ``command``."""
    return _DESCRIBERS.get(command, _describe_any)(data)


def _describe_any(data):
    return pairs([(cell(name), cell(value)) for name, value in flatten(data)]) or u"done"


def _describe_publish(data):
    if "published" in data:
        return _describe_published(data)
    lines = [cell(data.get("messageKey"))]
    if data.get("duplicate"):
        lines.append(u"a duplicate of this message: nothing was stored")
    elif data.get("gathering"):
        lines.append(_GATHERING.get(data["gathering"], cell(data["gathering"])))
    elif data.get("state"):
        lines.append(u"%s: %s: %s" % tuple(cell(data.get(name)) for name in ("state", "reasonCode", "reason")))
    return u"\n".join(lines)


_GATHERING = {
    "new": u"a new message, which gathers others for a while",
    "appended": u"appended to this message as a part",
}


def _describe_published(data):
    """The text of a publish to all queues that match a pattern."""
    rows = [(cell(queue), _describe_publish(one)) for queue, one in sorted(data["published"].items())]
    for queue, error in sorted((data.get("refused") or {}).items()):
        rows.append((cell(queue), u"%s: %s" % (cell(error.get("code")), cell(error.get("message")))))
    return pairs(rows) or u"no queue matches"


def _describe_consume(data):
    if data.get("messages"):
        now_ms = data.get("engineNowMs")
        return u"\n\n".join(_describe_consume(dict(one, engineNowMs=now_ms)) for one in data["messages"])
    message = data.get("message")
    if not message:
        return u"nothing to consume"
    lease = data.get("lease") or {}
    rows = [
        (u"queue", cell(message.get("queue"))),
        (u"message key", cell(message.get("messageKey"))),
    ]
    if message.get("name"):
        rows.append((u"name", cell(message["name"])))
    rows += [
        (u"lease id", cell(lease.get("leaseId"))),
        (u"lease until", _lease_end(lease, data)),
        (u"consumer", cell(lease.get("consumerId"))),
        (u"attempt", _attempt(message)),
        (u"priority", cell(message.get("priority"))),
        (u"created", moment(message.get("createdAt"))),
    ]
    if lease.get("phase"):
        rows.append((u"phase", u"%s: activate it, or release it" % cell(lease["phase"])))
    for name, label in _OPTIONAL:
        if message.get(name) not in (None, u"", u"{}", {}):
            rows.append((label, cell(message[name])))
    failure = message.get("failure")
    if failure:
        rows.append((u"died", u"%s, %s" % (moment(failure.get("failedAtMs")), _reason(failure, "reasonMessage"))))
    if "payload" not in message and not message.get("parts"):
        return pairs(rows)
    if not message.get("parts"):
        return pairs(rows + [(u"payload", _body(message))])
    for number, part in enumerate(message["parts"], 1):
        rows.append((u"part " + (cell(part["name"]) if part.get("name") else u"%d" % number), _body(part)))
        rows += [(u"  " + label, cell(part[name])) for name, label in _OPTIONAL if part.get(name)]
    return pairs(rows)


def _attempt(message):
    left = message.get("attemptsLeft")
    return cell(message.get("attempt")) + (u"" if left is None else u" (%s left)" % cell(left))


_OPTIONAL = (
    ("type", u"type"),
    ("version", u"version"),
    ("traceId", u"trace id"),
    ("traceparent", u"traceparent"),
    ("correlationId", u"correlation id"),
    ("replyTo", u"reply to"),
    ("deduplicationKey", u"dedup key"),
    ("timestamp", u"timestamp"),
    ("targetConsumerId", u"target"),
    ("contentType", u"content type"),
    ("attributes", u"attributes"),
)


def _reason(data, text_name):
    code, text = cell(data.get("reasonCode")), data.get(text_name)
    return code + u": " + cell(text) if text else code


def _body(message):
    body = decode_body(message)
    if not isinstance(body, Binary):
        return cell(body)
    shown = u"".join(u"%02x" % byte for byte in bytearray(body.data[:256]))
    return u"%d bytes: %s%s" % (len(body), shown, u"..." if len(body) > 256 else u"")


def _lease_end(lease, data):
    left_ms = remaining(lease, "leaseUntilEngineMs", data)
    return moment(lease.get("leaseUntil")) + (u"" if left_ms is None else u" (in %s)" % duration(left_ms))


def _describe_ack(data):
    return u"acknowledged"


def _describe_nack(data):
    state = data.get("state")
    left_ms = remaining(data, "availableAtEngineMs", data)
    if state == "delayed" and left_ms is not None:
        return u"delayed: delivered again in %s" % duration(left_ms)
    return cell(state) if state else u"done"


def _describe_results(data):
    rows = []
    for number, result in enumerate(data.get("results") or []):
        error = result.get("error")
        if error:
            text = u"%s: %s" % (cell(error.get("code")), cell(error.get("message")))
        else:
            words = [cell(result[name]) for name in ("messageKey", "state") if name in result]
            text = u" ".join(words + ([u"(duplicate)"] if result.get("duplicate") else [])) or u"acknowledged"
        rows.append((u"%d" % number, text))
    return pairs(rows) or u"done"


def _describe_release(data):
    return u"released"


def _describe_extend(data):
    return u"lease until " + _lease_end(data, data)


def _describe_browse(data):
    rows = []
    for one in data.get("messages") or []:
        body = one.get("payload", one.get("preview"))
        row = [cell(one.get(name)) for name in ("messageKey", "priority", "attempt", "bytes")]
        rows.append(row + [short_duration(one.get("ageMs")), u"body lost" if one.get("bodyLost") else cell(body)])
    if not rows:
        return u"nothing on this page" if data.get("next") else u"no messages"
    return table([u"message key", u"prio", u"attempt", u"bytes", u"age", u"body"], rows)


def _describe_message(data):
    """Return a message, and a line for each of its events."""
    rows = [(u"message key", cell(data.get("messageKey"))), (u"state", cell(data.get("state")))]
    message = data.get("message") or {}
    rows += [(cell(name), cell(message[name])) for name in sorted(message) if name not in ("messageKey", "state")]
    text = pairs(rows)
    events = data.get("events") or []
    if events:
        lines = []
        for event in events:
            row = [cell(event.get("id")), moment(event.get("wallMs")), cell(event.get("type"))]
            lines.append(row + [_event_details(event)])
        text += u"\n\n" + table([u"event", u"time", u"type", u"details"], lines)
    if data.get("cut"):
        text += u"\nolder events are not shown (complete from event %s)" % cell(data.get("completeFrom"))
    return text


def _event_details(event):
    details = []
    for name in ("consumer", "attempt", "to", "reason", "dueEngineMs"):
        if name in event:
            details.append(u"%s %s" % (name, cell(event[name])))
    failure = event.get("failure")
    if failure:
        details.append(u"%s: %s" % (cell(failure.get("reasonCode")), cell(failure.get("reasonMessage"))))
    if event.get("by"):
        details.append(u"by %s" % cell(event["by"].get("client")))
        for name in ("principal", "door"):
            if event["by"].get(name):
                details.append(u"%s %s" % (name, cell(event["by"][name])))
        if event["by"].get("traceparent"):
            details.append(u"trace %s" % cell(event["by"]["traceparent"][3:35]))
    return u", ".join(details)


def _describe_append(data):
    if "messageKeys" in data:
        left = short_duration(remaining(data, "availableAtEngineMs", data))
        return u"%s appended in %s: %s" % (cell(data.get("count")), left, u", ".join(map(cell, data["messageKeys"])))
    if data.get("count") == 1:
        return u"position " + cell(data.get("last"))
    return u"%s records, positions %s to %s" % tuple(cell(data.get(name)) for name in ("count", "first", "last"))


def _describe_records(data):
    rows = []
    for one in data.get("records") or []:
        attributes = one.get("attributes")
        shown = u"-" if attributes in (None, {}, u"{}") else cell(attributes)
        rows.append([cell(one.get("position")), moment(one.get("wallMs")), shown, _body(one)])
    if not rows:
        end = cell(data["end"]) if data.get("end") else u"the beginning: it never had a record"
        return u"no records after position %s; the log ends at %s" % (cell(data.get("last")), end)
    text = table([u"position", u"time", u"attributes", u"body"], rows)
    return text if data.get("last") == data.get("end") else text + u"\ncontinue with --after " + cell(data.get("last"))


def _describe_readers(data):
    rows = []
    for one in data.get("readers") or []:
        state = u"overtaken" if one.get("isOvertaken") else u"behind" if one.get("isBehind") else u"at the end"
        rows.append([cell(one.get("reader")), cell(one.get("position")), state])
    return table([u"reader", u"position", u"state"], rows) if rows else u"no readers"


def _describe_reader(data):
    if data.get("deleted"):
        return u"deleted"
    return u"%s is at position %s" % (cell(data.get("reader")), cell(data.get("position")))


def _describe_hold(data):
    if data.get("state") == "delayed":
        return u"delayed: delivered in %s" % short_duration(remaining(data, "availableAtEngineMs", data))
    return cell(data.get("state"))


def _describe_dlq(data):
    blocks = []
    for letter in data.get("messages") or []:
        rows = [
            (u"message key", cell(letter.get("messageKey"))),
            (u"died", moment(letter.get("dlqAt"))),
            (u"reason", _reason(letter, "reason")),
            (u"attempt", cell(letter.get("attempt"))),
            (u"consumer", cell(letter.get("consumerId") or None)),
            (u"bytes", cell(letter.get("bytes"))),
        ]
        if letter.get("queue") not in (None, data.get("queue")):  # the answer is about a dead-letter address
            rows.insert(0, (u"queue", cell(letter["queue"])))
        if letter.get("quarantined"):
            rows.append((u"quarantined", u"only reprocess --message-key makes it ready again"))
        original = letter.get("originalMessage")
        rows.append((u"payload", _body(original)) if original else (u"preview", cell(letter.get("preview"))))
        blocks.append(pairs(rows))
    if not blocks:
        return u"no dead letters"
    return u"\n\n".join(blocks)


_DESCRIBERS = {
    "publish": _describe_publish,
    "draft": _describe_publish,
    "set": _describe_hold,
    "append": _describe_append,
    "read": _describe_records,
    "list_readers": _describe_readers,
    "move_reader": _describe_reader,
    "delete_reader": _describe_reader,
    "publish_batch": _describe_results,
    "ack_batch": _describe_results,
    "nack_batch": _describe_results,
    "ack_and_publish": _describe_results,
    "consume_next": _describe_consume,
    "ack": _describe_ack,
    "nack": _describe_nack,
    "release": _describe_release,
    "extend_lease": _describe_extend,
    "activate": _describe_consume,
    "abandon": _describe_nack,
    "browse": _describe_browse,
    "get_message": _describe_message,
    "hold": _describe_hold,
    "unhold": _describe_hold,
    "list_dlq": _describe_dlq,
}
_DESCRIBERS.update(answers_queues.DESCRIBERS)
_DESCRIBERS.update(answers_daemon.DESCRIBERS)
