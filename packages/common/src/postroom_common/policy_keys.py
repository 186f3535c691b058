"""The keys of queue policies: types, defaults, bounds, and help."""

from __future__ import annotations

from typing import Final

from .protocol import DELAY_MS_LIMIT, RETRY_LIMIT_LIMIT, VISIBILITY_MS_LIMIT, WALL_MS_LIMIT
from .settings import Setting

BACKOFFS: Final = ("exponential", "linear", "fixed")
RETURNS: Final = ("place", "end")
KEPT: Final = ("none", "headers", "message")
KINDS: Final = ("queue", "log")

_SHORTEST_S: Final = 0.001
_LONGEST_LEASE_S: Final = VISIBILITY_MS_LIMIT // 1000
_LONGEST_DELAY_S: Final = DELAY_MS_LIMIT // 1000
_MOST: Final = 2**53

#: The keys of the C++ system come first, with its defaults and its corrections. Their upper bounds are new.
POLICY_KEYS: Final = (
    Setting("visibilityTimeoutSec", float, 30, "duration of a lease, seconds", _SHORTEST_S, _LONGEST_LEASE_S),
    Setting("retry.limit", int, 5, "deliveries before the message dies (0 acts as 1)", 0, RETRY_LIMIT_LIMIT, below=0),
    Setting(
        "retry.backoff", str, "exponential", "how the delay grows from retry to retry", choices=BACKOFFS, corrected=None
    ),
    Setting("retry.initialDelaySec", float, 1, "delay before the first retry, seconds", _SHORTEST_S, _LONGEST_DELAY_S),
    Setting("retry.maxDelaySec", float, 60, "longest delay before a retry, seconds", _SHORTEST_S, _LONGEST_DELAY_S),
    Setting("dlq.enabled", bool, True, "keep messages that die as dead letters; false: drop and count them"),
    Setting("dlq.queue", str, "", "dead-letter address; `<queue>.dlq` if empty"),
    Setting("dlq.retentionDays", float, 14, "days after which dead letters are dropped", _SHORTEST_S, 36500),
    Setting(
        "dlq.maxMessages", int, 0, "maximum number of dead letters; the oldest are dropped (0: no limit)", 0, _MOST
    ),
    Setting("retry.jitter", float, 0, "largest part of a delay, 0 to 1, that is taken off at random", 0, 1),
    Setting(
        "retry.sameReasonLimit",
        int,
        0,
        "number of attempts in a row with the same reason after which a message dies (0: no limit)",
        0,
        32,
    ),
    Setting(
        "retry.returnTo",
        str,
        "place",
        "where a returned message goes: to its old place, or to the end, behind the ready ones of its priority",
        choices=RETURNS,
        corrected=None,
    ),
    Setting("retry.nackCounts", bool, True, "count a nack with requeue as an attempt; false: give the attempt back"),
    Setting(
        "gatherWindowSec",
        float,
        0,
        "seconds in which messages are gathered into one, from the first on (0: each is one of its own)",
        0,
        _LONGEST_DELAY_S,
    ),
    Setting(
        "orderedSec",
        float,
        0,
        "seconds within which a consumer must activate a lease, before which no delivery counts (0: active at once)",
        0,
        _LONGEST_LEASE_S,
    ),
    Setting(
        "done.keep",
        str,
        "none",
        "what is kept of an acknowledged message: nothing, its headers, or all of it",
        choices=KEPT,
        corrected=None,
    ),
    Setting("done.retentionDays", float, 0, "days after which these are dropped (0: never)", 0, 36500),
    Setting("done.maxMessages", int, 0, "maximum number of these; the oldest are dropped (0: no limit)", 0, _MOST),
    Setting(
        "abandon.keep",
        str,
        "message",
        "what is kept of an abandoned message as a dead letter: all of it, its headers, or nothing",
        choices=KEPT,
        corrected=None,
    ),
    Setting(
        "draftingSec",
        float,
        0,
        "seconds after which a draft that is not ready is dropped (0: never)",
        0,
        _LONGEST_DELAY_S,
    ),
    Setting("ttlSec", float, 0, "seconds after which a message expires (0: never)", 0, _LONGEST_DELAY_S),
    Setting(
        "ttlAction",
        str,
        "dead-letter",
        "what happens to an expired message",
        choices=("dead-letter", "drop"),
        corrected=None,
    ),
    Setting(
        "targetFallbackSec",
        float,
        0,
        "seconds after which any consumer may get a message that its target has not taken (0: never)",
        0,
        _LONGEST_DELAY_S,
    ),
    Setting(
        "priority.oldestEvery",
        int,
        0,
        "every n-th delivery is the oldest message, whatever its priority (0: never)",
        0,
        2**31 - 1,
    ),
    Setting("limits.messages", int, 0, "maximum number of messages, not counting dead letters (0: no limit)", 0, _MOST),
    Setting("limits.bytes", int, 0, "maximum size of these messages, bodies and headers (0: no limit)", 0, _MOST),
    Setting("limits.messageBytes", int, 0, "maximum size of a message's body (0: as large as a request)", 0, _MOST),
    Setting("limits.inflight", int, 0, "messages in flight at a time (0: no limit)", 0, _MOST),
    Setting(
        "limits.inflightPerConsumer", int, 0, "messages in flight at a time to one consumer (0: no limit)", 0, _MOST
    ),
    Setting("limits.publishPerSec", float, 0, "messages published per second (0: no limit)", 0, 1e9),
    Setting(
        "limits.overflow",
        str,
        "reject",
        "what happens at a publish to a full queue",
        choices=("reject", "drop-oldest", "dead-letter"),
        corrected=None,
    ),
    Setting(
        "deduplication.mode",
        str,
        "off",
        "duplicate: a deduplicationKey used within windowSec, or by a message that still exists",
        choices=("off", "window", "while-present"),
        corrected=None,
    ),
    Setting(
        "deduplication.windowSec",
        float,
        300,
        "time within which a key counts in mode window, seconds",
        _SHORTEST_S,
        _LONGEST_DELAY_S,
    ),
    Setting("deduplication.content", bool, False, "use the body as the key of a message without one"),
    Setting("validation.schema", dict, {}, "JSON Schema that bodies must match (empty: none)"),
    Setting(
        "validation.onFailure",
        str,
        "reject",
        "what happens to a message that does not match",
        choices=("reject", "dead-letter"),
        corrected=None,
    ),
    Setting("statistics.enabled", bool, False, "measure rates and waiting times, for queue_statistics"),
    Setting(
        "expireAfterIdleSec",
        float,
        0,
        "seconds without use after which an empty queue is deleted (0: never)",
        0,
        _LONGEST_DELAY_S,
    ),
    Setting(
        "kind",
        str,
        "queue",
        "what is created under a name that does not exist: a queue, or a log, whose records stay for many readers",
        choices=KINDS,
        corrected=None,
    ),
    Setting("log.retentionHours", float, 0, "hours after which records are removed (0: never)", 0, 24 * 36500),
    Setting(
        "log.retentionBytes", int, 0, "bytes of records above which the oldest are removed (0: no limit)", 0, _MOST
    ),
    Setting(
        "log.keepUnread",
        bool,
        True,
        "remove no record that a named reader has not processed; a log that is full of these takes no more",
    ),
    Setting(
        "log.segmentBytes",
        int,
        64 * 1024 * 1024,
        "size at which a file of the log ends, at most an eighth of retentionBytes; whole files are removed",
        4096,
        2**32,
    ),
    Setting(
        "pipe.to",
        list,
        [],
        "names to which everything is passed on: the logs of a queue, or the queues of a log, at most 16",
    ),
    Setting("log.expireAtMs", int, 0, "Unix time (ms) at which the log is deleted (0: never)", 0, WALL_MS_LIMIT),
)
