"""A function for each reply: data to the text that people read."""

import json

from ._cli_output import duration, flatten, moment, pairs, show, table
from ._codec import Binary, decode_body
from ._compat import text_type


def describe(command, data):
    """The text of a reply."""
    return _DESCRIBERS.get(command, _describe_any)(data)


def _json_text(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text if isinstance(text, text_type) else text.decode("utf-8")


def _cell(value):
    return show(value, _json_text)


def _describe_any(data):
    return pairs([(_cell(name), _cell(value)) for name, value in flatten(data)]) or u"done"


def _describe_publish(data):
    return _cell(data.get("messageKey"))


def _describe_consume(data):
    message = data.get("message")
    if not message:
        return u"nothing to consume"
    lease = data.get("lease") or {}
    rows = [
        (u"queue", _cell(message.get("queue"))),
        (u"message key", _cell(message.get("messageKey"))),
        (u"lease id", _cell(lease.get("leaseId"))),
        (u"lease until", _lease_end(lease, data)),
        (u"consumer", _cell(lease.get("consumerId"))),
        (u"attempt", _cell(message.get("attempt"))),
        (u"priority", _cell(message.get("priority"))),
        (u"created", moment(message.get("createdAt"))),
    ]
    for name, label in _OPTIONAL:
        if message.get(name) not in (None, u"", u"{}", {}):
            rows.append((label, _cell(message[name])))
    body = decode_body(message)
    if isinstance(body, Binary):
        shown = u"".join(u"%02x" % byte for byte in bytearray(body.data[:256]))
        rows.append((u"payload", u"%d bytes: %s%s" % (len(body), shown, u"..." if len(body) > 256 else u"")))
    else:
        rows.append((u"payload", _cell(body)))
    return pairs(rows)


_OPTIONAL = (
    ("type", u"type"),
    ("version", u"version"),
    ("traceId", u"trace id"),
    ("deduplicationKey", u"dedup key"),
    ("timestamp", u"timestamp"),
    ("targetConsumerId", u"target"),
    ("contentType", u"content type"),
    ("attributes", u"attributes"),
)


def _lease_end(lease, data):
    end_ms, now_ms = lease.get("leaseUntilEngineMs"), data.get("engineNowMs")
    left = u" (in %s)" % duration(end_ms - now_ms) if isinstance(end_ms, int) and isinstance(now_ms, int) else u""
    return moment(lease.get("leaseUntil")) + left


def _describe_ack(data):
    return u"acknowledged"


def _describe_nack(data):
    state = data.get("state")
    if state == "delayed":
        end_ms, now_ms = data.get("availableAtEngineMs"), data.get("engineNowMs")
        if isinstance(end_ms, int) and isinstance(now_ms, int):
            return u"delayed: delivered again in %s" % duration(end_ms - now_ms)
    return _cell(state) if state else u"done"


def _describe_release(data):
    return u"released"


def _describe_extend(data):
    return u"lease until " + _lease_end(data, data)


def _paused(value):
    on = [name for name in ("publish", "consume") if (value or {}).get(name)]
    return u", ".join(u"%s" % name for name in on) or u"-"


def _describe_status(data):
    counts = data.get("metrics") or {}
    rows = [(u"queue", _cell(data.get("queue")) + (u"" if data.get("exists", True) else u" (does not exist)"))]
    rows += [(u"%s" % name, _cell(counts.get(name))) for name in ("ready", "inflight", "delayed", "dlq")]
    rows += [(u"oldest ready", duration(data.get("oldestReadyAgeMs"))), (u"paused", _paused(data.get("paused")))]
    rows += [(_cell(name), _cell(value)) for name, value in flatten(data.get("totals") or {}, u"totals.")]
    rows += [(_cell(name), _cell(value)) for name, value in flatten(data.get("policy") or {}, u"policy.")]
    return pairs(rows)


def _describe_queues(data):
    rows = []
    for queue in data.get("queues") or []:
        row = [_cell(queue.get(name)) for name in ("queue", "ready", "inflight", "delayed", "dlq")]
        rows.append(row + [duration(queue.get("oldestReadyAgeMs")), _paused(queue.get("paused"))])
    if not rows:
        return u"no queues"
    return table([u"queue", u"ready", u"inflight", u"delayed", u"dlq", u"oldest", u"paused"], rows) + _more(data)


def _describe_dlq(data):
    rows = []
    for letter in data.get("messages") or []:
        reason = letter.get("reason") or letter.get("reasonCode")
        rows.append(
            [
                _cell(letter.get("messageKey")),
                moment(letter.get("dlqAt")),
                _cell(letter.get("attempt")),
                _cell(letter.get("bytes")),
                _cut(_cell(reason), 40),
                _cut(_cell(letter.get("preview")), 60),
            ]
        )
    if not rows:
        return u"no dead letters"
    return table([u"message key", u"died", u"attempt", u"bytes", u"reason", u"preview"], rows) + _more(data)


def _cut(text, length):
    return text if len(text) <= length else text[: length - 3] + u"..."


def _more(data):
    return u"\nmore: --after '%s'" % _cell(data["next"]) if data.get("next") else u""


def _describe_reprocess(data):
    return u"ready again: " + _cell(data.get("messageKey"))


def _describe_pause(data):
    return u"%s: paused %s" % (_cell(data.get("queue")), _paused(data.get("paused")).replace(u"-", u"nothing"))


def _describe_policy(data):
    override = dict(flatten(data.get("override") or {}))
    rows = [
        (_cell(name), _cell(value) + (u"  (set at run time)" if name in override else u""))
        for name, value in flatten(data.get("policy") or {})
    ]
    return pairs(rows) or u"-"


_DESCRIBERS = {
    "publish": _describe_publish,
    "consume_next": _describe_consume,
    "ack": _describe_ack,
    "nack": _describe_nack,
    "release": _describe_release,
    "extend_lease": _describe_extend,
    "status": _describe_status,
    "list_queues": _describe_queues,
    "list_dlq": _describe_dlq,
    "reprocess_dlq": _describe_reprocess,
    "pause": _describe_pause,
    "resume": _describe_pause,
    "get_policy": _describe_policy,
    "set_policy": _describe_policy,
}
