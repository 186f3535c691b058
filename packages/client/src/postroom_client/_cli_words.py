"""The command line's own words: its commands, its options with their help, and the wire's names in them."""

import re

from ._protocol import FIELDS

#: Words on the command line, the command they mean, and what they do.
SUBCOMMANDS = (
    ("publish", "publish", "store a message"),
    ("consume", "consume_next", "lease the next message"),
    ("ack", "ack", "settle a message as done"),
    ("nack", "nack", "settle a message as failed: retry with --requeue, else dead letter"),
    ("release", "release", "give a message back untried"),
    ("extend", "extend_lease", "let a lease end later"),
    ("status", "status", "depths, policy and pauses of a queue"),
    ("queues", "list_queues", "list the queues"),
    ("list-dlq", "list_dlq", "list the dead letters of a queue"),
    ("reprocess", "reprocess_dlq", "make a dead letter ready again"),
    ("pause", "pause", "stop consuming from a queue, with --publish publishing to it"),
    ("resume", "resume", "undo pause"),
    ("policy get", "get_policy", "show a queue's policy"),
    ("policy set", "set_policy", "set keys of a queue's policy"),
    ("health", "health", "whether the daemon's journal, store and disk work (exit status 1 when not)"),
    ("metrics", "metrics", "counters and rates of the daemon"),
)

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
    "deduplicationKey": "the application's key of this fact, carried through",
    "timestamp": "the application's time of this fact, carried through",
    "consumerId": "who consumes (default: the client id)",
    "visibilityTimeoutSec": "seconds that the lease lasts, from now on (default: by the queue's policy)",
    "waitMs": "milliseconds to wait for a message (0: do not wait)",
    "waitLock": "do not hold a lock while waiting",
    "payloadAs": "text: message and attributes as text; value: as the JSON values that they are (text)",
    "messageKey": "key of the message, as publish, consume and list-dlq print it",
    "leaseId": "the delivery's lease, as consume prints it (without it the consumer id must be the holder's)",
    "reason": "why, for the dead letter's record",
    "requeue": "try it again later by the queue's policy (without it: dead letter)",
    "limit": "most entries to print (100)",
    "after": "continue behind this: the page before says what",
    "previewBytes": "bytes of each body to print (256)",
    "operation": "what to pause or resume (consume)",
    "policy": "JSON object of keys to set, or @FILE, or - (standard input, as without it); {} takes all of them back",
}


def option_names(field_name):
    """The options of a payload field: a short one where there is one, and the field's own name."""
    words = "".join("-" + char.lower() if char.isupper() else char for char in field_name)
    own = [] if field_name in _NOT_BY_OWN_NAME else ["--" + words]
    if field_name == "waitLock":
        return ["--no-wait-lock"]
    short = SHORT_OPTIONS.get(field_name)
    return ([short] if short else []) + own


def in_our_words(text):
    """``text`` for people with the wire's commands and fields under their names on the command line."""
    words = {command: word for word, command, _ in SUBCOMMANDS if "_" in command}
    words["clientId"] = "--client-id"
    for fields in FIELDS.values():
        words.update((field[0], option_names(field[0])[0]) for field in fields if field[0].lower() != field[0])
    # Not inside of what somebody else has named: a queue, a key, a path.
    names = re.compile(r"(?<![\w'\":/.-])(?:payload\.)?(%s)(?![\w'\":/-])" % "|".join(sorted(words)))
    return names.sub(lambda match: words[match.group(1)], text)
