"""A function for each reply: data to the text that people read."""

from ._cli_inspection import DESCRIBERS
from ._cli_letters import describe_address, describe_count
from ._cli_output import cell, duration, flatten, moment, pairs, quote, short_duration, table
from ._cli_table import terminal_width, width_of, wrap
from ._cli_vitals import describe_health, describe_metrics
from ._codec import Binary, decode_body


def describe(command, data):
    """The text of a reply."""
    return (_DESCRIBERS.get(command) or DESCRIBERS.get(command, _describe_any))(data)


def _describe_any(data):
    return pairs([(cell(name), cell(value)) for name, value in flatten(data)]) or u"done"


def _describe_publish(data):
    lines = [cell(data.get("messageKey"))]
    if data.get("duplicate"):
        lines.append(u"a duplicate of this message: nothing was stored")
    elif data.get("state"):
        lines.append(u"%s: %s: %s" % tuple(cell(data.get(name)) for name in ("state", "reasonCode", "reason")))
    return u"\n".join(lines)


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
        (u"lease id", cell(lease.get("leaseId"))),
        (u"lease until", _lease_end(lease, data)),
        (u"consumer", cell(lease.get("consumerId"))),
        (u"attempt", cell(message.get("attempt"))),
        (u"priority", cell(message.get("priority"))),
        (u"created", moment(message.get("createdAt"))),
    ]
    for name, label in _OPTIONAL:
        if message.get(name) not in (None, u"", u"{}", {}):
            rows.append((label, cell(message[name])))
    failure = message.get("failure")
    if failure:
        rows.append((u"died", u"%s, of %s" % (moment(failure.get("failedAtMs")), _reason(failure, "reasonMessage"))))
    return pairs(rows + [(u"payload", _body(message))])


def _reason(data, text_name):
    code, text = cell(data.get("reasonCode")), data.get(text_name)
    return code + u": " + cell(text) if text else code


def _body(message):
    body = decode_body(message)
    if not isinstance(body, Binary):
        return cell(body)
    shown = u"".join(u"%02x" % byte for byte in bytearray(body.data[:256]))
    return u"%d bytes: %s%s" % (len(body), shown, u"..." if len(body) > 256 else u"")


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
    return cell(state) if state else u"done"


def _describe_results(data):
    rows = []
    for number, result in enumerate(data.get("results") or []):
        error = result.get("error")
        if error:
            said = u"%s: %s" % (cell(error.get("code")), cell(error.get("message")))
        else:
            words = [cell(result[name]) for name in ("messageKey", "state") if name in result]
            said = u" ".join(words + ([u"(duplicate)"] if result.get("duplicate") else [])) or u"acknowledged"
        rows.append((u"%d" % number, said))
    return pairs(rows) or u"done"


def _describe_release(data):
    return u"released"


def _describe_extend(data):
    return u"lease until " + _lease_end(data, data)


def _paused(value):
    on = [name for name in ("publish", "consume") if (value or {}).get(name)]
    return u"both" if len(on) == 2 else u"%s" % on[0] if on else u"-"


def _describe_status(data):
    if data.get("deadLetters"):
        return describe_address(data)
    counts, now_ms, next_ms = data.get("metrics") or {}, data.get("engineNowMs"), data.get("nextDueEngineMs")
    due = next_ms - now_ms if isinstance(next_ms, int) and isinstance(now_ms, int) else None
    more = {
        "ready": _ages((u"oldest", data.get("oldestReadyAgeMs"))),
        "inflight": _ages((u"oldest lease", data.get("oldestLeaseAgeMs"))) + _ending(data),
        "delayed": _ages((u"next in", due)),
        "dlq": _ages((u"oldest", data.get("oldestDeadAgeMs"))) + _numbers(data.get("reasons")),
    }
    rows = [(u"queue", cell(data.get("queue")) + (u"" if data.get("exists", True) else u" (does not exist)"))]
    rows += [(u"paused", {u"both": u"publish, consume"}.get(_paused(data.get("paused")), _paused(data.get("paused"))))]
    if data.get("draining"):
        rows += [(u"draining", u"no new messages are taken")]
    for name in ("ready", "inflight", "delayed", "held", "dlq"):
        told = u", ".join(more.get(name, ()))
        rows.append((_STATES.get(name, u"%s" % name), cell(counts.get(name)) + (u"  (%s)" % told if told else u"")))
    if "bytes" in data:
        rows.append((u"bytes", cell(data["bytes"])))
    rows.append((u"ever", u", ".join(_numbers(data.get("totals"))) or u"-"))
    return u"\n\n".join([pairs(rows)] + ([_policy_groups(data["policy"])] if data.get("policy") else []))


_STATES = {"dlq": u"dead letters", "inflight": u"in flight"}


def _ages(*ages):
    return [u"%s %s" % (name, duration(ms)) for name, ms in ages if ms is not None]


def _ending(data):
    names = ((u"ending soon", "endingSoon"), (u"overdue", "overdue"))
    return [u"%s %s" % (cell(data[name]), said) for said, name in names if data.get(name)]


def _numbers(counts):
    return [u"%s %s" % (cell(name), cell(counts[name])) for name in sorted(counts or {}) if counts[name]]


def _policy_groups(policy):
    """A policy with one line for each group of keys."""
    rows, single = [], {}
    for name in sorted(policy):
        value = policy[name]
        if isinstance(value, dict):
            rows.append((u"  " + cell(name), [u"%s %s" % (cell(key), _value(one)) for key, one in flatten(value)]))
        else:
            single[name] = value
    rows += [(u"  " + cell(name), [_value(single[name])]) for name in sorted(single)]
    columns, longest = terminal_width(), max(width_of(name) for name, _ in rows) + 2
    lines = []
    for name, parts in rows:
        texts = wrap(parts, None if columns is None else columns - longest)
        lines += zip([name] + [u""] * len(texts), texts)
    return u"policy\n" + pairs(lines)


def _value(value):
    return u'""' if value == u"" else cell(value)


def _describe_queues(data):
    rows = []
    for queue in data.get("queues") or []:
        row = [cell(queue.get(name)) for name in ("queue", "ready", "inflight", "delayed", "held", "dlq")]
        row += [short_duration(queue.get(name)) for name in ("oldestReadyAgeMs", "oldestLeaseAgeMs")]
        rows.append(row + [_paused(queue.get("paused"))])
    if not rows:
        return u"no queues"
    headers = [u"queue", u"ready", u"infl", u"delay", u"held", u"dead", u"oldest", u"lease", u"paused"]
    return table(headers, rows) + (u"\ndraining: no new messages are taken" if data.get("draining") else u"")


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
        if letter.get("queue") not in (None, data.get("queue")):  # asked for by the name of its dead letters
            rows.insert(0, (u"queue", cell(letter["queue"])))
        if letter.get("quarantined"):
            rows.append((u"quarantined", u"only reprocess --message-key brings it back"))
        original = letter.get("originalMessage")
        rows.append((u"payload", _body(original)) if original else (u"preview", cell(letter.get("preview"))))
        blocks.append(pairs(rows))
    if not blocks:
        return u"no dead letters"
    return u"\n\n".join(blocks)


def _describe_reprocess(data):
    if data.get("messageKey"):
        return u"ready again: " + cell(data["messageKey"])
    return _describe_page(data, u"reprocessed", u"ready again")


def _describe_drop(data):
    return _describe_page(data, u"dropped", u"removed")


def _describe_page(data, name, word):
    would = u" (dry run: nothing was changed)" if data.get("dryRun") else u""
    more = u"\nmore: the same with --after %s" % quote(cell(data["next"])) if data.get("next") else u""
    return u"%s: %s%s%s" % (word, cell(data.get(name)), would, more)


def _describe_pause(data):
    return u"%s: paused for %s" % (cell(data.get("queue")), _operations(data, True) or u"nothing")


def _describe_resume(data):
    still, open_ = _operations(data, True), _operations(data, False)
    verb = u"is" if u" and " not in open_ else u"are"
    rest = u"still paused for %s" % still if still else u"%s %s open" % (open_, verb)
    return u"%s: resumed; %s" % (cell(data.get("queue")), rest)


def _operations(data, paused):
    """"consuming", "publishing" or both: those that are, or are not, paused."""
    state = data.get("paused") or {}
    names = ((u"consume", u"consuming"), (u"publish", u"publishing"))
    return u" and ".join(text for name, text in names if bool(state.get(name)) == paused)


def _describe_policy(data):
    if data.get("explanation"):
        return _describe_explanation(data["explanation"])
    override = dict(flatten(data.get("override") or {}))
    rows = [
        (cell(name), cell(value) + (u"  (set at run time)" if name in override else u""))
        for name, value in flatten(data.get("policy") or {})
    ]
    return pairs(rows) or u"-"


def _describe_explanation(explanation):
    rows = []
    for name in sorted(explanation, key=lambda name: (explanation[name].get("layer") == "default", name)):
        one = explanation[name]
        layer = u"set at run time" if one.get("layer") == "override" else cell(one.get("layer"))
        place = [quote(cell(one[word])) for word in ("pattern", "name") if word in one]
        rows.append([cell(name), _value(one.get("value")), u" ".join([layer] + place)])
    return table([u"key", u"value", u"from"], rows)


def _describe_schedules(data):
    rows = []
    for schedule in data.get("schedules") or []:
        last = moment(schedule["lastMs"]) if schedule.get("lastMs") else u"-"
        row = [cell(schedule.get(name)) for name in ("name", "queue", "cron", "timezone", "missed")]
        rows.append(row + [last, moment(schedule.get("nextMs"))])
    if not rows:
        return u"no schedules"
    headers = [u"name", u"queue", u"cron", u"time zone", u"missed", u"last", u"next"]
    return table(headers, rows)


def _describe_schedule(data):
    if data.get("deleted"):
        return u"deleted"
    return u"next run: %s" % moment(data.get("nextMs"))


_DESCRIBERS = {
    "publish": _describe_publish,
    "publish_batch": _describe_results,
    "ack_batch": _describe_results,
    "nack_batch": _describe_results,
    "ack_and_publish": _describe_results,
    "consume_next": _describe_consume,
    "ack": _describe_ack,
    "nack": _describe_nack,
    "release": _describe_release,
    "extend_lease": _describe_extend,
    "status": _describe_status,
    "list_queues": _describe_queues,
    "list_dlq": _describe_dlq,
    "count_dlq": describe_count,
    "reprocess_dlq": _describe_reprocess,
    "drop_dlq": _describe_drop,
    "pause": _describe_pause,
    "resume": _describe_resume,
    "health": describe_health,
    "metrics": describe_metrics,
    "list_schedules": _describe_schedules,
    "set_schedule": _describe_schedule,
    "delete_schedule": _describe_schedule,
    "get_policy": _describe_policy,
    "set_policy": _describe_policy,
}
