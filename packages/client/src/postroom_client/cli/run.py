"""Runs one command of ``postroom``: parse, send, print, exit status."""

import errno
import json
import os
import sys

from .._codec import Binary, decode_body
from .._compat import text_type
from .._protocol import ERROR_CODES
from ..client import Client
from ..errors import DaemonNotRunning, InvalidArgument, PostroomError, RequestRejected, RequestTimeout, ServerError
from . import pipe
from .answers import describe
from .arguments import (
    DEFAULT_TIMEOUT_MS,
    EXIT_ERROR,
    EXIT_NO_ANSWER,
    EXIT_NOTHING,
    EXIT_OK,
    EXIT_USAGE,
    command_words,
    parse,
    split,
)
from .names import directories, with_option_names
from .output import cell, escape, write, write_bytes
from .paging import IRREVERSIBLE, PAGED, next_page, run_all
from .payload import UsageError, payload_of

#: Commands that may be sent again after a timeout without a second thought.
_READ_ONLY = ("status", "health", "metrics", "list_queues", "list_dlq", "count_dlq", "get_policy") + (
    "get_policy_patterns",
    "browse",
    "get_message",
    "list_inflight",
    "list_consumers",
    "queue_statistics",
    "list_schedules",
    "read",
    "list_readers",
)


def main(arguments=None):
    """Run one command and return the exit status. ``arguments`` are by default those of the process."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except (IOError, OSError) as error:
        if error.errno != errno.EPIPE:
            raise
        # Nobody reads standard output any more. Python would report that again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_ERROR


def _run(arguments):
    arguments, program = split(arguments)
    try:
        options = parse(arguments)
    except UsageError as error:
        return _fail(error, None, "--json" in arguments)
    as_json = getattr(options, "json", False)
    word = command_words(options)
    try:
        if program is not None:
            return _run_work(options, program, as_json)
        if options.command == "pipe":
            return _run_pipe(options, word, as_json)
        payload = payload_of(options)
        with _connect(options) as client:
            if options.command == "read":
                return _read(client, options, word, payload, as_json)
            if options.command == "delete_queue" and options.log:
                client.list_readers(payload["queue"])  # refused for a queue
            data = _send(client, options, payload)
            if data is None:
                write(u"nothing was done", sys.stderr)
                return EXIT_ERROR
            _print_answer(options, word, payload, data, as_json)
            status = _status_of(options.command, data)
            if options.command == "consume_next" and options.ack and status == EXIT_OK:
                return _acknowledge(client, data)
            return status
    except (PostroomError, UsageError) as error:
        return _fail(error, word, as_json)


def _run_work(options, program, as_json):
    from .work import find_problem, work

    problem = find_problem(options, program)
    if problem:
        raise UsageError(problem)
    with _connect(options) as client:
        count = work(client, options, program, as_json)
    if as_json:
        _write_json({"ok": True, "command": "work", "data": {"messages": count}})
    return EXIT_OK


def _run_pipe(options, word, as_json):
    timeout_s = _timeout_s(options, {})
    with _connect(options) as client:
        data = pipe.change(lambda command, payload: _call(client, command, payload, timeout_s), options)
    if as_json:
        _write_json({"ok": True, "command": word, "data": data})
    else:
        write(pipe.describe(data))
    return EXIT_OK


def _read(client, options, word, payload, as_json):
    """Show records of a log; with --follow until the user interrupts it."""
    reader = payload.get("reader")
    if options.move and reader is None:
        raise UsageError("--move needs --reader")
    while True:
        data = _send(client, options, payload)
        if data.get("records") or not options.follow:
            _print_answer(options, word, payload, data, as_json)
        if data.get("records") and options.move:
            client.move_reader(payload["queue"], reader, data["last"])
        if not options.follow:
            return EXIT_OK if data.get("records") else EXIT_NOTHING
        for name in ("reader", "start", "sinceMs", "exact"):
            payload.pop(name, None)
        payload["after"] = data["last"]


def _connect(options):
    """Return a client. Raises ``DaemonNotRunning`` at once if no daemon runs and --wait-daemon is not given."""
    ipc_root = getattr(options, "ipc_root", None) or os.environ.get("POSTROOM_IPC_ROOT") or "./ipc"
    client_id = getattr(options, "client_id", None) or "cli-%d" % os.geteuid()
    client = Client(ipc_root, client_id=client_id, **directories(options))
    if not getattr(options, "wait_daemon", False) and client.is_daemon_running() is False:
        hint = "; start postroomd, name another --ipc-root, or wait with --wait-daemon"
        missing = client._transport.explain_missing(hint)
        raise DaemonNotRunning(missing or "no daemon serves %s%s" % (client.ipc_root, hint))
    return client


def _send(client, options, payload):
    """Send the command and return the data of the answer; None if the user did not confirm it."""
    timeout_s = _timeout_s(options, payload)
    if options.command not in PAGED:
        data = _call(client, options.command, payload, timeout_s)
        if "format" in payload and "text" not in data:
            raise PostroomError("this daemon is older: it has no metrics in the format of Prometheus")
        return data
    rate = getattr(options, "rate", None)
    if rate is not None and ("limit" in payload or "messageKey" in payload):
        raise UsageError("--rate is for all pages: leave out --limit and --message-key")
    ask = options.command in IRREVERSIBLE and not options.yes and sys.stdin is not None and sys.stdin.isatty()
    return run_all(
        lambda page: _call(client, options.command, page, timeout_s), options.command, payload, ask, rate
    )


def _call(client, command, payload, timeout_s):
    try:
        return client.call(command, payload, timeout_s)
    except RequestTimeout as error:
        text = "no answer in %g s" % timeout_s
        if command in ("publish", "publish_batch", "append"):
            text += ": it may have been executed; publishing again may store it twice"
        elif command not in _READ_ONLY:
            text += ": it may have been executed"
        raise RequestTimeout(text, error.request)


def _timeout_s(options, payload):
    timeout_ms = getattr(options, "timeout", None)
    wait_ms = payload.get("waitMs") or 0
    if timeout_ms is None:
        return (DEFAULT_TIMEOUT_MS + max(wait_ms, 0)) / 1000.0
    if timeout_ms < 1:
        raise UsageError("--timeout must be at least 1 ms, not %d" % timeout_ms)
    if wait_ms > timeout_ms * 0.9:
        payload["waitMs"] = int(timeout_ms * 0.9)  # leaves time for the answer
    return timeout_ms / 1000.0


def _print_answer(options, word, payload, data, as_json):
    if as_json:
        _write_json({"ok": True, "command": word, "data": data})
    elif getattr(options, "raw", False):
        records = [{"message": one} for one in data.get("records") or ()]
        for one in records or data.get("messages") or [data]:
            _write_body(one)
    else:
        write(describe(options.command, data) + next_page(options, word, payload, data))


def _status_of(command, data):
    if command == "health" and data.get("status") != "ok":
        return EXIT_ERROR
    if data.get("refused") or any("error" in result for result in data.get("results") or ()):
        return EXIT_ERROR
    if command == "consume_next" and not data.get("message") and not data.get("messages"):
        return EXIT_NOTHING
    return EXIT_OK


def _acknowledge(client, data):
    # The message has been printed: if this fails, it is delivered again and not lost.
    try:
        for one in data.get("messages") or [data]:
            key, lease = one["message"]["messageKey"], one.get("lease") or {}
            if lease.get("phase"):
                client.activate(key, lease_id=lease.get("leaseId"), payload_as="none")
            client.ack(key, lease_id=lease.get("leaseId"))
    except PostroomError as error:
        text = u"postroom: not acknowledged, it will be delivered again: "
        write(text + with_option_names(_text_of(error)), sys.stderr)
        return EXIT_ERROR
    return EXIT_OK


def _write_body(data):
    if data.get("message"):
        body = decode_body(data["message"])
        if isinstance(body, Binary):
            write_bytes(body.data)
        elif isinstance(body, text_type):
            write_bytes(body.encode("utf-8"))
        else:
            _write_json(body)


def _write_json(value):
    text = json.dumps(value, sort_keys=True)  # plain ASCII, whatever the locale is
    write(text if isinstance(text, text_type) else text.decode("ascii"))


def _fail(error, word, as_json):
    """Report an error and return the exit status."""
    code, status = _classify(error)
    message = error.message if isinstance(error, ServerError) else _text_of(error)
    data = getattr(error, "data", None) or {}
    if as_json:
        shown = {"code": code, "message": message}
        if data:
            shown["data"] = data
        _write_json({"ok": False, "command": word, "error": shown})
        return status
    text = with_option_names(_text_of(error))
    advice = ERROR_CODES.get(code)
    write(u"postroom: " + (escape(text) if sys.stderr.isatty() else text), sys.stderr)
    if advice:
        write(u"  " + with_option_names(advice[1]), sys.stderr)
    for name in sorted(name for name in data if data[name]):
        write(u"  data.%s: %s" % (name, cell(data[name])), sys.stderr)
    return status


def _classify(error):
    """Return the code for machines and the exit status of an error."""
    if isinstance(error, ServerError):
        return error.code, EXIT_ERROR
    if isinstance(error, RequestTimeout):
        return "CLIENT_TIMEOUT", EXIT_NO_ANSWER
    if isinstance(error, DaemonNotRunning):
        return "DAEMON_NOT_RUNNING", EXIT_NO_ANSWER
    if isinstance(error, RequestRejected):
        return "REQUEST_REJECTED", EXIT_ERROR
    if isinstance(error, (InvalidArgument, UsageError)):
        return "USAGE", EXIT_USAGE
    return "MAILBOX_ERROR", EXIT_ERROR


def _text_of(error):
    text = str(error)
    return text if isinstance(text, text_type) else text.decode("utf-8", "replace")
