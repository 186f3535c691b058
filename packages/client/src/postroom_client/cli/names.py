"""Names and help texts of the command line: its commands, its options, and how they differ from the wire's names."""

import os
import re

from .._protocol import FIELDS

#: Words on the command line, the command that they mean, and its help.
SUBCOMMANDS = (
    ("publish", "publish", "publish a message"),
    ("publish-batch", "publish_batch", "publish several messages at once"),
    ("draft", "draft", "store a message with named parts, which is ready when all of them are set"),
    ("set", "set", "set a part of a draft, or the body of a leased message"),
    ("consume", "consume_next", "lease the next message"),
    ("ack", "ack", "acknowledge a message: it is done"),
    ("ack-batch", "ack_batch", "acknowledge several messages"),
    ("ack-and-publish", "ack_and_publish", "acknowledge a message and publish others, all or nothing"),
    ("nack", "nack", "settle a message as failed: retry it with --requeue, else make it a dead letter"),
    ("nack-batch", "nack_batch", "settle several messages as failed"),
    ("release", "release", "return a message unprocessed: the attempt does not count"),
    ("extend", "extend_lease", "extend a lease"),
    ("activate", "activate", "begin to work on a message whose lease is ordered"),
    ("abandon", "abandon", "give up a message in whatever state: it becomes a dead letter"),
    ("log append", "append", "append records to a log"),
    ("log read", "read", "show records of a log; with --follow, also new ones as they come"),
    ("log readers", "list_readers", "list the readers of a log"),
    ("log move-reader", "move_reader", "record up to which position a reader has processed a log"),
    ("log delete-reader", "delete_reader", "delete a reader of a log"),
    ("status", "status", "show the backlog, policy and pauses of a queue"),
    ("queues", "list_queues", "list the queues"),
    ("statistics", "queue_statistics", "show rates and waiting times of queues"),
    ("consumers", "list_consumers", "list the consumers"),
    ("inflight", "list_inflight", "list the leased messages with their consumers"),
    ("browse", "browse", "list the messages of a queue without leasing them"),
    ("message", "get_message", "show one message and its events"),
    ("list-dlq", "list_dlq", "list the dead letters of a queue"),
    ("count-dlq", "count_dlq", "count the dead letters of a queue by reason"),
    ("reprocess", "reprocess_dlq", "make dead letters ready again"),
    ("drop-dlq", "drop_dlq", "remove dead letters"),
    ("quarantine", "quarantine_dlq", "quarantine a dead letter, so that only its own key makes it ready again"),
    ("hold", "hold", "put one message on hold: it is not delivered until unhold"),
    ("unhold", "unhold", "undo hold"),
    ("move", "move", "move messages to another queue"),
    ("purge", "purge", "remove messages from a queue"),
    ("create-queue", "create_queue", "create a queue, or with --log a log"),
    ("delete-queue", "delete_queue", "delete a queue that is empty, or with its messages"),
    ("pause", "pause", "stop consuming from a queue; with --publish, stop publishing to it"),
    ("resume", "resume", "undo pause"),
    ("policy get", "get_policy", "show a queue's policy"),
    ("policy set", "set_policy", "set keys of a queue's policy"),
    ("policy patterns", "get_policy_patterns", "show the policies by pattern"),
    ("policy set-patterns", "set_policy_patterns", "replace the policies by pattern"),
    ("schedule list", "list_schedules", "list the schedules"),
    ("schedule set", "set_schedule", "publish a message at given times"),
    ("schedule delete", "delete_schedule", "delete a schedule"),
    ("drain", "drain", "refuse new messages in all queues; --no-draining ends that"),
    ("health", "health", "show whether the daemon's journal, store and disk work (exit status 1 if not)"),
    ("metrics", "metrics", "show the daemon's counters and rates"),
)

#: Words of the C++ system's clients, and ours.
ALIASES = {
    "extend-lease": "extend",
    "extendlease": "extend",
    "listdlq": "list-dlq",
    "dlq": "list-dlq",
    "reprocess-dlq": "reprocess",
}

#: Options for directories of the mailbox that the daemon's configuration may rename: the arguments of the client, which
#: are the ends of the variables for client and daemon, and their help.
DIRECTORIES = (
    ("requests_dir", "name of its directory of requests"),
    ("responses_dir", "name of its directory of responses"),
    ("dead_dir", "name of its directory of rejected requests"),
)
#: First words of commands that have two, and their help.
GROUPS = {
    "policy": "show or set policies",
    "log": "append and read records that stay",
    "schedule": "publish messages at given times",
}

#: Further words behind ``log``, which are short for others, and their help.
LOG_WORDS = (
    ("create", "create a log: short for create-queue --log"),
    ("tail", "show records, and new ones as they come: short for log read --follow"),
    ("delete", "delete a log with its records: short for delete-queue --discard --log"),
)

#: Help of ``postroom log pipe`` and ``postroom work``, which are not commands of the protocol.
PIPE = "show, add or remove the names to which a queue or log passes everything on: pipe.to of its policy"
WORK = "run a program for each message of a queue"

#: Shorter names of options. The option named like the field (--delay-ms) exists as well.
SHORT_OPTIONS = {
    "delayMs": "--delay",
    "targetConsumerId": "--target",
    "visibilityTimeoutSec": "--visibility",
    "waitMs": "--wait",
    "deduplicationKey": "--dedup-key",
    "version": "--msg-version",
}
#: Fields whose own name would mean something else as an option.
_NOT_BY_OWN_NAME = ("version", "waitLock")
#: Fields that are true by default: the option turns them off.
_ON_BY_DEFAULT = ("waitLock", "quarantined", "draining", "mustBeNew")

#: Keys of a filter; `docs/protocol.md` explains them.
FILTER_KEYS = (
    "reasonCode",
    "notReasonCode",
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

#: Help of an option whose field has another help in the protocol.
HELP = {
    "message": "TEXT, @FILE, or - for standard input (the default, unless it is a terminal)",
    "attributes": "headers as a JSON object, or @FILE",
    "targetConsumerId": "the only consumer that may get the message (default: any)",
    "encoding": "base64: the message is binary data as base64 text (--binary sets this itself)",
    "consumerId": "name of the consumer (default: the client id)",
    "visibilityTimeoutSec": "lease duration in seconds, from now on (default: by the queue's policy)",
    "waitMs": "milliseconds to wait for a message (0: do not wait)",
    "waitLock": "do not lock the request file while waiting",
    "messageKey": "key of the message, as publish, consume and list-dlq print it",
    "leaseId": "lease id, as consume prints it (without it, the consumer id must be that of the lease)",
    "requeue": "retry it later by the queue's policy (without it: dead letter)",
    "limit": "maximum number of entries to print (100)",
    "after": "continue after this entry, as the previous page printed it",
    "previewBytes": "bytes of each body to print (256)",
    "fullBodies": "print complete bodies, not previews",
    "anyHolder": "whoever has the lease; a lease id that is given must still be right",
    "operation": "what to pause or resume (consume)",
    "messages": "JSON array of objects with the fields of publish, or @FILE, or - for standard input (the default)",
    "parts": "JSON array of the names of its parts, such as '[\"head\", \"image\"]', or @FILE, or - for standard input "
    "(the default)",
    "items": "JSON array of objects, each with a message key and a lease id, or @FILE, or - for standard input",
    "filter": "JSON object or @FILE that selects messages (all), such as '{\"olderThanMs\": 86400000}'; its keys: %s"
    % ", ".join(FILTER_KEYS),
    "quarantined": "lift the quarantine",
    "draining": "end the drain: accept new messages again",
    "ttlMs": "milliseconds after which the message expires (default: by the queue's policy)",
    "targetFallbackMs": "milliseconds after which any consumer may get the message, if its target has not (default: by "
    "the queue's policy)",
    "policy": "JSON object of keys to set, such as '{\"retry\": {\"limit\": 3}}', or @FILE, or - for standard input "
    "(the default); keys that were set before stay, {} removes them all",
    "patterns": "JSON array of objects such as '{\"pattern\": \"^eu[.]\", \"policy\": {\"ttlSec\": 60}}', or @FILE, "
    "or - for standard input (the default); the first that matches a queue's name applies, [] removes them all",
    "createWith": "JSON object, or @FILE: policy with which the queue is created if it does not exist ({}: without "
    "one)",
}

_PAGE_LIMIT = "do one page of at most so many messages (without it: all pages)"

#: Help of an option of one command, where other commands with that option have another.
HELP_OF = {
    ("append", "messages"): "JSON array of objects with the fields of a record, or @FILE, or - "
    "for standard input; instead of --message",
    ("append", "delayMs"): "milliseconds after which the records are appended (0)",
    ("append", "createWith"): "JSON object, or @FILE: policy with which the log is created if it does not exist ({}: "
    "without one)",
    ("read", "waitMs"): "milliseconds to wait for a record (0: do not wait)",
    ("read", "after"): "only records after this position (0, the default: from the oldest on)",
    ("create_queue", "createWith"): "JSON object, or @FILE: policy of the queue",
    ("create_queue", "mustBeNew"): "no error if the queue exists",
    ("nack", "delayMs"): "with --requeue: milliseconds before the retry (default: by the queue's policy)",
    ("publish", "queuePattern"): "regular expression: publish to every queue in whose name it is found",
    ("consume_next", "queuePattern"): "regular expression: consume from any queue in whose name it is found",
    ("get_policy", "createWith"): "JSON object, or @FILE: if the queue does not exist, show its policy as if "
    "it were created with this one",
    ("release", "undelivered"): "it did not reach its consumer: return it to its place, whatever the policy says",
    ("set", "messageKey"): "key of the message, as draft prints it; with --lease-id not needed",
    ("set", "queue"): "without --message-key: queue in which the message must be",
    ("set", "attributes"): "without --part: other headers as a JSON object, or @FILE",
    ("draft", "ttlMs"): "milliseconds after which the message expires, from when it is ready (default: by the queue's "
    "policy)",
    ("consume_next", "max"): "maximum number of messages to lease (1)",
    ("consume_next", "mustExist"): "fail if the queue does not exist, or is deleted while this waits",
    ("consume_next", "orderedSec"): "begin the lease ordered, not counted as an attempt, for so many seconds in which "
    "activate must follow; 0: active at once (default: by the queue's policy)",
    ("abandon", "leaseId"): "lease id, as consume prints it: the message must be leased under it",
    ("abandon", "ifState"): "give it up only if it is in this state, or its lease in this phase (ordered, active)",
    ("purge", "messageKey"): "remove only this message, whatever its state, also in flight",
    ("purge", "ifState"): "remove it only if it is in this state, or its lease in this phase (ordered, active)",
    ("purge", "resetTally"): "set the tally of the queue to 0 at the end",
    ("move", "messageKey"): "key of one message (without it, --queue, --state and --filter select)",
    ("reprocess_dlq", "messageKey"): "key of one dead letter (without it, --queue and --filter select)",
    ("drop_dlq", "messageKey"): "key of one dead letter (without it, --queue and --filter select)",
    ("move", "limit"): _PAGE_LIMIT,
    ("purge", "limit"): _PAGE_LIMIT,
    ("reprocess_dlq", "limit"): _PAGE_LIMIT,
    ("drop_dlq", "limit"): _PAGE_LIMIT,
}
for _command in ("ack", "ack_and_publish", "nack", "release", "extend_lease", "activate"):
    HELP_OF[_command, "messageKey"] = "key of the message, as consume prints it (--lease-id alone is enough)"
    HELP_OF[_command, "queue"] = "without --message-key: queue in which the message must be"


def directories(options):
    """Return the names of the mailbox's directories that are given, as arguments of the client."""
    given = [(name, getattr(options, name, None) or os.environ.get(variable(name))) for name, _ in DIRECTORIES]
    return {name: value for name, value in given if value}


def variable(argument):
    """Return the environment variable that names a directory of the mailbox, for client and daemon."""
    return "POSTROOM_IPC_" + argument.upper()


def option_help(command, field_name, text, default):
    """Return the help of the option of a field, with its default unless the help has it. ``text`` is the help of the
    protocol."""
    text = HELP_OF.get((command, field_name)) or HELP.get(field_name, text)
    if default not in (None, "") and not isinstance(default, bool) and "(" not in text:
        text += " (%s)" % default
    return text


def option_names(field_name):
    """Return the options of a field: a short one if there is one, and the field's own name."""
    words = "".join("-" + char.lower() if char.isupper() else char for char in field_name)
    own = [] if field_name in _NOT_BY_OWN_NAME else ["--" + words]
    if field_name in _ON_BY_DEFAULT:
        return ["--no-" + words]
    short = SHORT_OPTIONS.get(field_name)
    return ([short] if short else []) + own


def with_option_names(text):
    """Return a text of the protocol with the names of commands and fields replaced by those of the command line."""
    words = {command: word for word, command, _ in SUBCOMMANDS if "_" in command}
    words["clientId"] = "--client-id"
    for fields in FIELDS.values():
        words.update((field[0], option_names(field[0])[0]) for field in fields if field[0].lower() != field[0])
    # Not inside of names of queues, keys and paths. What follows about a filter lists its keys, which are no options.
    names = re.compile(r"(?<![\w'\":/.-])(?:payload\.)?(%s)(?![\w'\":/-])" % "|".join(sorted(words)))
    replaceable, semicolon, rest = text.partition(";") if "filter." in text else (text, "", "")
    return names.sub(lambda match: words[match.group(1)], replaceable) + semicolon + rest
