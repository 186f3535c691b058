"""The command line's own words: its commands, its options with their help, and the wire's names in them."""

import re

from ._protocol import FIELDS

#: Words on the command line, the command they mean, and what they do.
SUBCOMMANDS = (
    ("publish", "publish", "store a message"),
    ("publish-batch", "publish_batch", "store several messages at once"),
    ("consume", "consume_next", "lease the next message"),
    ("ack", "ack", "settle a message as done"),
    ("ack-batch", "ack_batch", "settle several messages as done"),
    ("ack-and-publish", "ack_and_publish", "settle a message as done and store others, all or nothing"),
    ("nack", "nack", "settle a message as failed: retry with --requeue, else dead letter"),
    ("nack-batch", "nack_batch", "settle several messages as failed"),
    ("release", "release", "give a message back untried"),
    ("extend", "extend_lease", "let a lease end later"),
    ("status", "status", "depths, policy and pauses of a queue"),
    ("queues", "list_queues", "list the queues"),
    ("consumers", "list_consumers", "who consumes"),
    ("inflight", "list_inflight", "what is leased, by whom, until when"),
    ("browse", "browse", "look at the messages of a queue without taking them"),
    ("message", "get_message", "show one message, and what happened to it"),
    ("list-dlq", "list_dlq", "list the dead letters of a queue"),
    ("count-dlq", "count_dlq", "count the dead letters of a queue by reason"),
    ("reprocess", "reprocess_dlq", "make dead letters ready again"),
    ("drop-dlq", "drop_dlq", "remove dead letters"),
    ("quarantine", "quarantine_dlq", "set a dead letter apart, so that only its own key brings it back"),
    ("hold", "hold", "keep one message from being delivered"),
    ("unhold", "unhold", "undo hold"),
    ("move", "move", "bring messages to another queue"),
    ("purge", "purge", "remove messages from a queue"),
    ("delete-queue", "delete_queue", "delete a queue that holds no messages"),
    ("pause", "pause", "stop consuming from a queue, with --publish publishing to it"),
    ("resume", "resume", "undo pause"),
    ("policy get", "get_policy", "show a queue's policy"),
    ("policy set", "set_policy", "set keys of a queue's policy"),
    ("schedule list", "list_schedules", "list the schedules"),
    ("schedule set", "set_schedule", "publish a message by the clock"),
    ("schedule delete", "delete_schedule", "forget a schedule"),
    ("drain", "drain", "take no new messages in any queue; --no-draining ends that"),
    ("health", "health", "whether the daemon's journal, store and disk work (exit status 1 when not)"),
    ("metrics", "metrics", "counters and rates of the daemon"),
)

#: Words that others follow, and what they are about.
GROUPS = {"policy": "show or set a queue's policy", "schedule": "messages that are published by the clock"}

#: What ``postroom work`` does, which is no command of the protocol.
WORK = "run a program for each message of a queue"

#: Shorter names; each field also has the option of its own name (--delay-ms).
SHORT_OPTIONS = {
    "delayMs": "--delay",
    "targetConsumerId": "--target",
    "visibilityTimeoutSec": "--visibility",
    "waitMs": "--wait",
    "deduplicationKey": "--dedup-key",
    "version": "--msg-version",
}
#: Where the option of a field's own name would mean something else.
_NOT_BY_OWN_NAME = ("version", "waitLock")

#: What a filter may name; `docs/protocol.md` says what each of them means.
FILTER_KEYS = (
    "reasonCode",
    "reasonText",
    "olderThanMs",
    "youngerThanMs",
    "from",
    "to",
    "consumerId",
    "attemptAtLeast",
    "priority",
    "targetConsumerId",
    "orderingKey",
    "correlationId",
    "attribute",
    "text",
    "jsonPath",
)

#: Help of an option, where the protocol's text about the field is not that.
HELP = {
    "message": "TEXT|@FILE|- (standard input); without it standard input, when it is not a terminal",
    "attributes": "JSON object of headers, or @FILE",
    "delayMs": "milliseconds before it can be consumed (0)",
    "targetConsumerId": "only this consumer may have it (default: anyone)",
    "encoding": "base64: the message is base64 text of binary data (--binary does that itself)",
    "contentType": "media type of the message, as image/png",
    "type": "the application's message type",
    "version": "the application's version of that type",
    "deduplicationKey": "key of this fact: by the queue's policy, a second message with it is not stored",
    "timestamp": "the application's time of this fact, carried through",
    "consumerId": "who consumes (default: the client id)",
    "visibilityTimeoutSec": "seconds that the lease lasts, from now on (default: by the queue's policy)",
    "waitMs": "milliseconds to wait for a message (0: do not wait)",
    "waitLock": "do not hold a lock while waiting",
    "payloadAs": "text: message and attributes as text; value: as the JSON values that they are (text)",
    "messageKey": "key of the message, as publish, consume and list-dlq print it",
    "leaseId": "the delivery's lease, as consume prints it (without it the consumer id must be the holder's)",
    "reason": "why, for the record of the message",
    "requeue": "try it again later by the queue's policy (without it: dead letter)",
    "limit": "most entries to print (100)",
    "after": "continue behind this: the page before says what",
    "previewBytes": "bytes of each body to print (256)",
    "fullBodies": "print whole bodies, not previews",
    "operation": "what to pause or resume (consume)",
    "messages": "JSON array of objects with the fields of publish, or @FILE, or - (standard input, as without it)",
    "items": "JSON array of objects that each name a message and its lease, or @FILE, or - (standard input)",
    "filter": "which messages are meant (all), as JSON or @FILE, as '{\"olderThanMs\": 86400000}'; its keys: %s"
    % ", ".join(FILTER_KEYS),
    "dryRun": "change nothing: count what would be changed",
    "quarantined": "take it back",
    "draining": "end it: take new messages again",
    "ttlMs": "milliseconds after which it is no longer wanted (default: by the queue's policy)",
    "targetFallbackMs": "milliseconds after which anyone may have it, if its target has not (default: by the queue's "
    "policy)",
    "policy": "JSON object of keys to set, as '{\"retry\": {\"limit\": 3}}', or @FILE, or - (standard input, as "
    "without it); keys that were set before stay, {} takes all of them back",
}

_PAGE = "do one page, of at most so many (without it all pages are done)"

#: Help of an option of one command, where it is not that of the others.
HELP_OF = {
    ("nack", "delayMs"): "milliseconds until it is tried again, with --requeue (default: by the queue's policy)",
    ("move", "limit"): _PAGE,
    ("purge", "limit"): _PAGE,
    ("reprocess_dlq", "limit"): _PAGE,
    ("drop_dlq", "limit"): _PAGE,
}


def option_help(command, field_name, text, default):
    """Help of the option of a payload field: ``text`` is the protocol's about it. With the default where that is
    neither absent nor said."""
    text = HELP_OF.get((command, field_name)) or HELP.get(field_name, text)
    if default not in (None, "", True, False) and "(" not in text:
        text += " (%s)" % default
    return text


def option_names(field_name):
    """The options of a payload field: a short one where there is one, and the field's own name."""
    words = "".join("-" + char.lower() if char.isupper() else char for char in field_name)
    own = [] if field_name in _NOT_BY_OWN_NAME else ["--" + words]
    if field_name in ("waitLock", "quarantined", "draining"):  # on, unless one says no
        return ["--no-" + words]
    short = SHORT_OPTIONS.get(field_name)
    return ([short] if short else []) + own


def in_our_words(text):
    """``text`` for people with the wire's commands and fields under their names on the command line."""
    words = {command: word for word, command, _ in SUBCOMMANDS if "_" in command}
    words["clientId"] = "--client-id"
    for fields in FIELDS.values():
        words.update((field[0], option_names(field[0])[0]) for field in fields if field[0].lower() != field[0])
    # Not inside of what somebody else has named: a queue, a key, a path. The keys of a filter have no options.
    names = re.compile(r"(?<![\w'\":/.-])(?:payload\.)?(%s)(?![\w'\":/-])" % "|".join(sorted(words)))
    said, keys, rest = text.partition("; known are ")
    if "filter." not in said:
        said, keys, rest = text, "", ""
    return names.sub(lambda match: words[match.group(1)], said) + keys + rest
