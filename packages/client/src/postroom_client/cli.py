"""``postroom``: the commands of the protocol from a shell."""

import errno
import json
import os
import sys

from . import _cli_options as cli_options
from ._cli_again import next_page
from ._cli_human import describe
from ._cli_output import escape, write, write_bytes
from ._cli_payload import UsageError, payload_of
from ._cli_words import in_our_words
from ._codec import Binary, decode_body
from ._compat import text_type
from ._mailbox import explain_missing
from ._protocol import ERROR_CODES
from .client import Client
from .errors import DaemonNotRunning, InvalidArgument, PostroomError, RequestRejected, RequestTimeout, ServerError


def main(arguments=None):
    """Run one command; returns the exit status. ``arguments`` are those of the process where None."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return 130
    except (IOError, OSError) as error:
        if error.errno != errno.EPIPE:
            raise
        # The reader of standard output has gone; Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return cli_options.EXIT_ERROR


def _run(arguments):
    arguments, program = cli_options.split(arguments)
    try:
        options = cli_options.parse(arguments)
    except UsageError as error:
        return _fail(error, None, "--json" in arguments)
    as_json = getattr(options, "json", False)
    word = cli_options.command_words(options)
    try:
        if program is None:
            payload = payload_of(options)
        else:
            _check_work(options, program)
        with _make_client(options) as client:
            if not getattr(options, "wait_daemon", False) and client.is_daemon_running() is False:
                hint = "; start postroomd, name another --ipc-root, or wait with --wait-daemon"
                missing = explain_missing(client.ipc_root, hint)
                raise DaemonNotRunning(missing or "no daemon serves %s%s" % (client.ipc_root, hint))
            if program is not None:
                return _work(client, options, program, as_json)
            if options.command in _PAGED:
                data = _operate(client, options, payload, _timeout_s(options, payload))
                if data is None:
                    write(u"nothing was done", sys.stderr)
                    return cli_options.EXIT_ERROR
            else:
                data = _call(client, options.command, payload, _timeout_s(options, payload))
            if "format" in payload and "text" not in data:
                raise PostroomError("this daemon is older: it does not tell its figures in the format of Prometheus")
            if as_json:
                _write_json({"ok": True, "command": word, "data": data})
            elif getattr(options, "raw", False):
                for one in data.get("messages") or [data]:
                    _write_body(one)
            else:
                write(describe(options.command, data) + next_page(options, word, payload, data))
            if options.command == "health" and data.get("status") != "ok":
                return cli_options.EXIT_ERROR
            if any("error" in result for result in data.get("results") or ()):
                return cli_options.EXIT_ERROR
            if options.command != "consume_next":
                return cli_options.EXIT_OK
            if not data.get("message") and not data.get("messages"):
                return cli_options.EXIT_NOTHING
            if options.ack:
                return _acknowledge(client, data)
            return cli_options.EXIT_OK
    except (PostroomError, UsageError) as error:
        return _fail(error, word, as_json)


def _check_work(options, program):
    from ._cli_work import problem

    wrong = problem(options, program)
    if wrong:
        raise UsageError(wrong)


def _work(client, options, program, as_json):
    from ._cli_work import work

    count = work(client, options, program, as_json)
    if as_json:
        _write_json({"ok": True, "command": "work", "data": {"messages": count}})
    return cli_options.EXIT_OK


def _make_client(options):
    ipc_root = getattr(options, "ipc_root", None) or os.environ.get("POSTROOM_IPC_ROOT") or "./ipc"
    client_id = getattr(options, "client_id", None) or "cli-%d" % os.geteuid()
    return Client(ipc_root, client_id=client_id)


def _operate(client, options, payload, timeout_s):
    from ._cli_operate import FINAL, operate

    rate = getattr(options, "rate", None)
    if rate is not None and ("limit" in payload or "messageKey" in payload):
        raise UsageError("--rate is for all pages: leave out --limit and --message-key")
    ask = options.command in FINAL and not options.yes and sys.stdin is not None and sys.stdin.isatty()
    return operate(
        lambda fields: _call(client, options.command, fields, timeout_s), options.command, payload, ask, rate
    )


def _call(client, command, payload, timeout_s):
    try:
        return client.call(command, payload, timeout_s)
    except RequestTimeout as error:
        text = "no answer in %g s" % timeout_s
        if command in ("publish", "publish_batch"):
            text += ": it may have been executed; publishing again may store it twice"
        elif command not in _CHANGING_NOTHING:
            text += ": it may have been executed"
        raise RequestTimeout(text, error.request)


#: Commands that go on page after page.
_PAGED = ("purge", "move", "reprocess_dlq", "drop_dlq")
_CHANGING_NOTHING = ("status", "health", "metrics", "list_queues", "list_dlq", "count_dlq", "get_policy") + (
    "browse",
    "get_message",
    "list_inflight",
    "list_consumers",
    "list_schedules",
)


def _timeout_s(options, payload):
    timeout_ms = getattr(options, "timeout", None)
    wait_ms = payload.get("waitMs") or 0
    if timeout_ms is None:
        return (cli_options.DEFAULT_TIMEOUT_MS + max(wait_ms, 0)) / 1000.0
    if timeout_ms < 1:
        raise UsageError("--timeout must be at least 1 ms, not %d" % timeout_ms)
    if wait_ms > timeout_ms * 0.9:
        payload["waitMs"] = int(timeout_ms * 0.9)  # leaves time for the answer that there is nothing
    return timeout_ms / 1000.0


def _acknowledge(client, data):
    # The message is printed first: should this fail, it is delivered again and not lost.
    try:
        for one in data.get("messages") or [data]:
            client.ack(one["message"]["messageKey"], lease_id=(one.get("lease") or {}).get("leaseId"))
    except PostroomError as error:
        write(u"postroom: not acknowledged, it will be delivered again: " + in_our_words(_text_of(error)), sys.stderr)
        return cli_options.EXIT_ERROR
    return cli_options.EXIT_OK


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
    code, status = _classify(error)
    message = error.message if isinstance(error, ServerError) else _text_of(error)
    if as_json:
        _write_json({"ok": False, "command": word, "error": {"code": code, "message": message}})
        return status
    text = in_our_words(_text_of(error))
    advice = ERROR_CODES.get(code)
    write(u"postroom: " + (escape(text) if sys.stderr.isatty() else text), sys.stderr)
    if advice:
        write(u"  " + in_our_words(advice[1]), sys.stderr)
    return status


def _classify(error):
    if isinstance(error, ServerError):
        return error.code, cli_options.EXIT_ERROR
    if isinstance(error, RequestTimeout):
        return "CLIENT_TIMEOUT", cli_options.EXIT_NO_ANSWER
    if isinstance(error, DaemonNotRunning):
        return "DAEMON_NOT_RUNNING", cli_options.EXIT_NO_ANSWER
    if isinstance(error, RequestRejected):
        return "REQUEST_REJECTED", cli_options.EXIT_ERROR
    if isinstance(error, (InvalidArgument, UsageError)):
        return "USAGE", cli_options.EXIT_USAGE
    return "MAILBOX_ERROR", cli_options.EXIT_ERROR


def _text_of(error):
    text = str(error)
    return text if isinstance(text, text_type) else text.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
