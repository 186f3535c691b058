"""Answers about queues: backlog, leases, consumers, dead letters as a whole, policies, schedules."""

import pwd

from .output import cell, duration, flatten, moment, pairs, quote, remaining, short_duration, table
from .table import terminal_width, width_of, wrap


def _describe_status(data):
    if data.get("deadLetters"):
        return _describe_address(data)
    counts = data.get("metrics") or {}
    details = {
        "ready": _ages((u"oldest", data.get("oldestReadyAgeMs"))),
        "inflight": _ages((u"oldest lease", data.get("oldestLeaseAgeMs"))) + _ending(data) + _ordered(counts),
        "delayed": _ages((u"next in", remaining(data, "nextDueEngineMs", data))),
        "dlq": _ages((u"oldest", data.get("oldestDeadAgeMs"))) + _nonzero(data.get("reasons")),
    }
    paused = _paused(data.get("paused"))
    rows = [(u"queue", cell(data.get("queue")) + (u"" if data.get("exists", True) else u" (does not exist)"))]
    rows += [(u"paused", u"publish, consume" if paused == u"both" else paused)]
    if data.get("draining"):
        rows += [(u"draining", u"no new messages are accepted")]
    log = data.get("log") or {}
    if log:
        made = (cell(log.get("created")), moment(log.get("createdMs")))
        rows.append((u"kind", u"log, created by event %s at %s" % made))
        rows += [(label, cell(log.get(name))) for name, label in _OF_LOG]
        rows += [(u"deleted at", moment(log["expireAtMs"]))] if log.get("expireAtMs") else []
    for name, _ in _COUNTS[1:]:
        if (name in _RARE or log) and not counts.get(name):
            continue
        detail = u", ".join(details.get(name, ()))
        text = cell(counts.get(name)) + (u"  (%s)" % detail if detail else u"")
        rows.append((_STATES.get(name, u"%s" % name), text))
    if "bytes" in data and not log:
        rows.append((u"bytes", cell(data["bytes"])))
    rows.append((u"totals", u", ".join(_nonzero(data.get("totals"))) or u"-"))
    if any((data.get("tally") or {}).values()):
        rows.append((u"not kept", u", ".join(_nonzero(data["tally"]))))
    return u"\n\n".join([pairs(rows)] + ([_policy_groups(data["policy"])] if data.get("policy") else []))


_OF_LOG = (
    ("records", u"records"),
    ("bytes", u"bytes"),
    ("first", u"first position"),
    ("last", u"last position"),
    ("readers", u"readers"),
)
#: Keys of a policy that are about logs, and those of its limits that apply to them.
_KEYS_OF_LOGS = ("kind", "log", "pipe", "validation", "limits")
_LIMITS_OF_LOGS = ("messageBytes", "publishPerSec")
_STATES = {"dlq": u"dead letters", "inflight": u"in flight", "held": u"on hold"}


def _ages(*ages):
    return [u"%s %s" % (name, duration(ms)) for name, ms in ages if ms is not None]


def _ending(data):
    fields = (("endingSoon", u"ending soon"), ("overdue", u"overdue"))
    return [u"%s %s" % (cell(data[name]), label) for name, label in fields if data.get(name)]


def _ordered(counts):
    return [u"%s ordered" % cell(counts["ordered"])] if counts.get("ordered") else []


def _nonzero(counts):
    return [u"%s %s" % (cell(name), cell(counts[name])) for name in sorted(counts or {}) if counts[name]]


def _paused(value):
    on = [name for name in ("publish", "consume") if (value or {}).get(name)]
    return u"both" if len(on) == 2 else u"%s" % on[0] if on else u"-"


def _policy_groups(policy):
    """Return a policy with one line for each group of keys: those that mean something for a queue, or for a log."""
    rows, single = [], {}
    if policy.get("kind") == "log":
        policy = {name: policy[name] for name in _KEYS_OF_LOGS if name in policy}
        limits = policy.get("limits") or {}
        policy["limits"] = {name: limits[name] for name in _LIMITS_OF_LOGS if name in limits}
    elif "kind" in policy:
        policy = {name: policy[name] for name in policy if name not in ("kind", "log")}
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
    columns = [column for column in _COUNTS if column[0] not in _RARE or _any(data, column[0])]
    with_logs = _any(data, "log")
    for queue in data.get("queues") or []:
        row = [cell(queue.get(name)) for name, _ in columns]
        row += [cell((queue.get("log") or {}).get("records"))] if with_logs else []
        row += [short_duration(queue.get(name)) for name in ("oldestReadyAgeMs", "oldestLeaseAgeMs")]
        rows.append(row + [_paused(queue.get("paused"))])
    if not rows:
        return u"no queues"
    headers = [label for _, label in columns] + [u"records"] * with_logs + [u"oldest", u"lease", u"paused"]
    text = table(headers, rows) + (u"\ndraining: no new messages are accepted" if data.get("draining") else u"")
    for queue in data["queues"]:
        if queue.get("policy"):
            text += u"\n\n%s\n%s" % (cell(queue.get("queue")), _describe_policy(queue))
    return text


_COUNTS = (
    ("queue", u"queue"),
    ("ready", u"ready"),
    ("inflight", u"infl"),
    ("delayed", u"delay"),
    ("gathering", u"gather"),
    ("drafting", u"draft"),
    ("held", u"hold"),
    ("dlq", u"dead"),
    ("done", u"done"),
)
#: Counts that are shown only if there are any.
_RARE = ("gathering", "drafting", "done")


def _any(data, name):
    return any(queue.get(name) for queue in data.get("queues") or ())


def _describe_inflight(data):
    now_ms, rows = data.get("engineNowMs"), []
    for one in data.get("messages") or []:
        row = [cell(one.get("messageKey")), cell(one.get("queue")), cell(one.get("consumerId")), _user(one)]
        row += [cell(one.get("attempt")), short_duration(_elapsed(one.get("leasedAtEngineMs"), now_ms))]
        left = short_duration(remaining(one, "leaseUntilEngineMs", data))
        row += [u"overdue" if one.get("overdue") else left, _state_of_lease(one)]
        rows.append(row)
    if not rows:
        return u"nothing on this page" if data.get("next") else u"no message is leased"
    return table([u"message key", u"queue", u"consumer", u"user", u"attempt", u"leased", u"left", u"state"], rows)


def _state_of_lease(message):
    return u"dead" if message.get("state") == "dead" else cell(message.get("phase") or u"-")


def _elapsed(since_ms, now_ms):
    return now_ms - since_ms if isinstance(since_ms, int) and isinstance(now_ms, int) else None


def _user(message):
    """Return who has leased a message: the name of a user of this machine, or a principal of a gateway."""
    uid = message.get("uid", message.get("principal"))
    try:
        return cell(pwd.getpwuid(uid).pw_name)
    except (KeyError, TypeError, OverflowError):
        return cell(uid)


def _describe_consumers(data):
    now_ms = data.get("engineNowMs")
    rows = []
    for one in data.get("consumers") or []:
        idle = short_duration(_elapsed(one.get("lastAskedEngineMs"), now_ms))
        rows.append([cell(one.get(name)) for name in ("queue", "consumerId", "inflight", "delivered")] + [idle])
    waiting = [
        [cell(one.get(name)) for name in ("queuePattern", "consumerId", "waiting")]
        for one in data.get("waitingByPattern") or []
    ]
    tables = [table([u"queue", u"consumer", u"in flight", u"delivered", u"idle"], rows)] if rows else []
    tables += [table([u"pattern", u"consumer", u"waiting"], waiting)] if waiting else []
    return u"\n\n".join(tables) or u"no consumer since the daemon started"


def _describe_statistics(data):
    rows = []
    for one in data.get("queues") or []:
        if not one.get("enabled"):
            return u"%s is not measured: set statistics.enabled of its policy" % cell(one.get("queue"))
        meters = [one[name] for name in ("published", "delivered")]
        row = [cell(one["queue"])]
        for meter in meters:
            row += [cell(meter["count"]), u"%.2f" % meter["oneMinute"], u"%.2f" % meter["fifteenMinutes"]]
        waits = one["retention"]
        rows.append(row + [u"%.3f s" % waits[name] if waits["n"] else u"-" for name in ("median", "max")])
    if not rows:
        return u"no queue is measured: set statistics.enabled of a policy"
    head = [u"queue", u"published", u"/s 1 min", u"/s 15 min", u"delivered", u"/s 1 min", u"/s 15 min"]
    return table(head + [u"median wait", u"longest"], rows)


def _describe_count(data):
    return pairs([(u"dead letters of", cell(data.get("queue")))] + _letter_counts(data))


def _describe_address(data):
    """Return the status of a dead-letter address."""
    letters = data["deadLetters"]
    queues = u", ".join(cell(queue) for queue in letters.get("queues") or ())
    rows = [(u"queue", cell(data.get("queue")) + u" (a dead-letter address)"), (u"dead letters of", queues)]
    return pairs(rows + _letter_counts(letters))


_DIED = (
    ("diedLastHour", u"died in the last hour"),
    ("diedLastDay", u"died in the last day"),
    ("diedTotal", u"died in total"),
)


def _letter_counts(letters):
    rows = [(u"count", letters.get("count"))] + flatten(letters.get("byReason") or {})
    rows += [(label, letters.get(name)) for name, label in _DIED]
    rows = [(cell(label), cell(value)) for label, value in rows]
    age_ms = letters.get("newestAgeMs")
    newest = u"-" if age_ms is None else u"%s (%s ago)" % (moment(letters.get("newestAt")), duration(age_ms))
    return rows + [(u"oldest", duration(letters.get("oldestAgeMs"))), (u"newest", newest)]


def _describe_reprocess(data):
    if data.get("messageKey"):
        return u"ready again: " + cell(data["messageKey"])
    return _describe_page(data, u"reprocessed", u"ready again")


def _describe_drop(data):
    return _describe_page(data, u"dropped", u"removed")


def _describe_page(data, name, word):
    dry_run = u" (dry run: nothing was changed)" if data.get("dryRun") else u""
    more = u"\nmore: the same command with --after %s" % quote(cell(data["next"])) if data.get("next") else u""
    return u"%s: %s%s%s" % (word, cell(data.get(name)), dry_run, more)


def _describe_purge(data):
    word = u"would be removed" if data.get("dryRun") else u"removed"
    return u"%s: %s %s" % (cell(data.get("queue")), cell(data.get("purged")), word) + _next_options(data)


def _describe_move(data):
    word = u"would move" if data.get("dryRun") else u"moved"
    queue, count, target = (cell(data.get(name)) for name in ("queue", "moved", "to"))
    return u"%s: %s %s to %s" % (queue, count, word, target) + _next_options(data)


def _next_options(data):
    """Return the options for the next page. Not the whole command: the answer does not have the filter, and without it
    the command would apply to other messages."""
    if not data.get("next"):
        return u""
    options = (quote(cell(data["next"])), cell(data["upToEvent"]))
    return u"\nmore: the same command with --after %s --up-to-event %s" % options


def _describe_delete(data):
    if data.get("deleted") is False:
        return u"%s: %s messages removed, and there are more: repeat this" % (
            cell(data.get("queue")), cell(data.get("discarded")),
        )
    return u"%s: deleted" % cell(data.get("queue"))


def _describe_drain(data):
    if data.get("draining"):
        return u"draining: no new messages are accepted"
    return u"not draining: new messages are accepted"


def _describe_pause(data):
    return u"%s: paused for %s" % (cell(data.get("queue")), _operations(data, True) or u"nothing")


def _describe_resume(data):
    still, open_ = _operations(data, True), _operations(data, False)
    verb = u"is" if u" and " not in open_ else u"are"
    rest = u"still paused for %s" % still if still else u"%s %s open" % (open_, verb)
    return u"%s: resumed; %s" % (cell(data.get("queue")), rest)


def _operations(data, paused):
    """Return "consuming", "publishing" or both: those that are paused, or those that are not."""
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


def _describe_policy_patterns(data):
    rows = []
    for one in data.get("patterns") or []:
        keys = [u"%s %s" % (cell(name), cell(value)) for name, value in flatten(one.get("policy") or {})]
        rows.append([quote(cell(one.get("pattern"))), u", ".join(keys) or u"-"])
    return table([u"pattern", u"policy"], rows) if rows else u"no policies by pattern"


def _describe_schedules(data):
    rows = []
    for schedule in data.get("schedules") or []:
        last = moment(schedule["lastMs"]) if schedule.get("lastMs") else u"-"
        row = [cell(schedule.get(name)) for name in ("name", "queue", "cron", "timezone", "missed")]
        rows.append(row + [last, moment(schedule.get("nextMs"))])
    if not rows:
        return u"no schedules"
    return table([u"name", u"queue", u"cron", u"time zone", u"missed", u"last", u"next"], rows)


def _describe_schedule(data):
    if data.get("deleted"):
        return u"deleted"
    return u"next run: %s" % moment(data.get("nextMs"))


DESCRIBERS = {
    "status": _describe_status,
    "list_queues": _describe_queues,
    "list_inflight": _describe_inflight,
    "list_consumers": _describe_consumers,
    "queue_statistics": _describe_statistics,
    "count_dlq": _describe_count,
    "reprocess_dlq": _describe_reprocess,
    "drop_dlq": _describe_drop,
    "purge": _describe_purge,
    "move": _describe_move,
    "delete_queue": _describe_delete,
    "drain": _describe_drain,
    "pause": _describe_pause,
    "resume": _describe_resume,
    "get_policy": _describe_policy,
    "set_policy": _describe_policy,
    "get_policy_patterns": _describe_policy_patterns,
    "set_policy_patterns": _describe_policy_patterns,
    "list_schedules": _describe_schedules,
    "set_schedule": _describe_schedule,
    "delete_schedule": _describe_schedule,
}
