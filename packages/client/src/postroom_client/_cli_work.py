"""``postroom work``: a command is run for each message of a queue."""

import logging
import os
import sys

from ._cli_output import write
from ._command import REJECTED_STATUS, Command
from ._compat import integer_types, text_type
from ._process_pool import ProcessPool
from ._processing import CannotProcess
from ._worker import Options, Worker, log

_DESCRIPTION = """\
Run COMMAND for each message of a queue, one after the other, until SIGTERM or
SIGINT.

The body is its standard input, the facts of the message are in its environment:
POSTROOM_MESSAGE_KEY, POSTROOM_MESSAGE_ID, POSTROOM_QUEUE, POSTROOM_ATTEMPT,
POSTROOM_ATTRIBUTES (JSON), and others where the message has them.
Exit status 0 acknowledges the message, %d makes it a dead letter at once, and
after any other it is tried again by the queue's policy; the reason is the
status with the last line of standard error. The lease lasts as long as the
command runs. A signal is passed on, and the end of the command waited for.
""" % REJECTED_STATUS


def add_options(parser, lenient):
    """The options of ``postroom work``."""
    add = parser.add_argument
    parser.description = _DESCRIPTION
    parser.usage = "postroom [options] work --queue NAME [options] -- COMMAND [ARGUMENT ...]"
    add("--queue", required=not lenient, metavar="NAME", help="name of the queue")
    add("--consumer-id", metavar="TEXT", help="who consumes (default: the client id)")
    text = "seconds of a lease, extended while the command runs (default: by the queue's policy)"
    add("--visibility", type=float, metavar="S", help=text)
    add("--max", type=int, metavar="N", help="end after so many messages, each process by itself")
    text = "seconds that a command may run: then SIGTERM, ten seconds later SIGKILL (default: any time)"
    add("--timeout", dest="run_timeout", type=float, metavar="S", help=text)
    add("--processes", type=int, default=1, metavar="N", help="so many commands at a time (1)")
    add("--until-empty", action="store_true", help="end when there is no message (default: wait for one)")


def problem(options, command):
    """What is wrong with a command line, or None."""
    if not command:
        return "the command to run is missing: postroom work --queue NAME -- COMMAND"
    for name, option in (("visibility", "--visibility"), ("max", "--max"), ("run_timeout", "--timeout")):
        value = getattr(options, name)
        if value is not None and not 0 < value < 1e9:
            raise_to = "at least 1" if isinstance(value, integer_types) else "greater than 0"
            return "%s must be %s, not %s" % (option, raise_to, value)
    if not 1 <= options.processes <= 1000:
        return "--processes must be 1 to 1000, not %d" % options.processes
    if _find(command[0]) is None:
        return "cannot run %r: there is no such program, or it may not be executed" % command[0]
    return None


def work(client, options, command, as_json):
    """Run it. How many messages were worked on. Raises ``PostroomError``."""
    _log_to_stderr()
    chosen = Options(
        {
            "consumer_id": options.consumer_id,
            "visibility_timeout_sec": options.visibility,
            "max_messages": options.max,
            "until_empty": options.until_empty,
            "payload_as": "text",
        }
    )

    def run(parent=None):
        handler = Command(command, client.ipc_root, options.run_timeout, quiet=as_json)
        worker = Worker(client, options.queue, handler, chosen)
        handler.is_stopping = lambda: worker.stop_signal
        try:
            with handler:
                worker.run(parent)
        except CannotProcess as error:
            if worker.stop_signal is None:
                write(u"postroom: %s" % error, sys.stderr)
                raise SystemExit(1)
        return worker.count

    if options.processes == 1:
        return run()
    return ProcessPool(options.processes, run, chosen.stop_signals, None).run()


def _find(program):
    """The path of a program, as the shell finds it."""
    if os.sep in program:
        places = [program]
    else:
        places = [os.path.join(place, program) for place in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), None)


class _ToStandardError(logging.Handler):
    """One line for each trouble, without the trace of it."""

    def emit(self, record):
        try:
            text = record.getMessage()
            text = text if isinstance(text, text_type) else text.decode("utf-8", "replace")
            write(u"postroom: " + text, sys.stderr)
        except (IOError, OSError):
            pass  # nobody reads it any more


def _log_to_stderr():
    log.propagate = False
    if not any(isinstance(handler, _ToStandardError) for handler in log.handlers):
        log.addHandler(_ToStandardError())
