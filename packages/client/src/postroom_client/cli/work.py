"""``postroom work``: runs a program for each message of a queue."""

import logging
import os
import sys

from .._compat import integer_types, text_type
from .._process_pool import ProcessPool
from .._processing import CannotProcess
from .._worker import Options, Worker, log
from .names import directories, variable
from .output import write
from .program import REJECTED_STATUS, Program

_DESCRIPTION = """\
Run PROGRAM for each message of a queue, one after the other, until SIGTERM or
SIGINT.

The program gets the body on its standard input, and the headers in environment
variables: POSTROOM_MESSAGE_KEY, POSTROOM_MESSAGE_ID, POSTROOM_QUEUE,
POSTROOM_ATTEMPT, POSTROOM_ATTRIBUTES (JSON), and more if the message has them.
Exit status 0 acknowledges the message, %d makes it a dead letter at once, and
any other retries it by the queue's policy; the reason is the exit status with
the last line of standard error. The lease lasts as long as the program runs. A
signal is passed on to the program, and postroom waits for its end.
""" % REJECTED_STATUS


def add_options(parser, lenient):
    """Add the options of ``postroom work``."""
    add = parser.add_argument
    parser.description = _DESCRIPTION
    parser.usage = "postroom [options] work --queue NAME [options] -- PROGRAM [ARGUMENT ...]"
    add("--queue", required=not lenient, metavar="NAME", help="name of the queue")
    add("--consumer-id", metavar="TEXT", help="name of the consumer (default: the client id)")
    text = "lease duration in seconds, extended while the program runs (default: by the queue's policy)"
    add("--visibility", type=float, metavar="S", help=text)
    add("--max", type=int, metavar="N", help="stop after N messages, in each process")
    text = "maximum run time of the program in seconds: then SIGTERM, ten seconds later SIGKILL (default: none)"
    add("--timeout", dest="run_timeout", type=float, metavar="S", help=text)
    add("--processes", type=int, default=1, metavar="N", help="number of programs that run at a time (1)")
    add("--until-empty", action="store_true", help="stop when there is no message (default: wait for one)")


def find_problem(options, program):
    """Return what is wrong with the command line, or None."""
    if not program:
        return "the program to run is missing: postroom work --queue NAME -- PROGRAM"
    for name, option in (("visibility", "--visibility"), ("max", "--max"), ("run_timeout", "--timeout")):
        value = getattr(options, name)
        if value is not None and not 0 < value < 1e9:
            bound = "at least 1" if isinstance(value, integer_types) else "greater than 0"
            return "%s must be %s, not %s" % (option, bound, value)
    if not 1 <= options.processes <= 1000:
        return "--processes must be 1 to 1000, not %d" % options.processes
    if _find(program[0]) is None:
        return "cannot run %r: it does not exist, or you may not execute it" % program[0]
    return None


def work(client, options, program, as_json):
    """Run ``program`` for each message. Return the number of messages processed. Raises ``PostroomError``."""
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

    mailbox = {variable(name): value for name, value in directories(options).items()}
    mailbox["POSTROOM_IPC_ROOT"] = client.ipc_root

    def run(pool=None):
        handler = Program(program, mailbox, options.run_timeout, quiet=as_json)
        worker = Worker(client, options.queue, handler, chosen)
        handler.stop_signal = lambda: worker.stop_signal
        try:
            with handler:
                worker.run(pool)
        except CannotProcess as error:
            if worker.stop_signal is None:
                write(u"postroom: %s" % error, sys.stderr)
                raise SystemExit(1)
        return worker.count

    if options.processes == 1:
        return run()
    return ProcessPool(options.processes, run, chosen.stop_signals, None).run()


def _find(program):
    """Return the path of a program, found like the shell does."""
    if os.sep in program:
        paths = [program]
    else:
        paths = [os.path.join(folder, program) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


class _StderrHandler(logging.Handler):
    """Logs each record as one line, without traceback."""

    def emit(self, record):
        try:
            text = record.getMessage()
            text = text if isinstance(text, text_type) else text.decode("utf-8", "replace")
            write(u"postroom: " + text, sys.stderr)
        except (IOError, OSError):
            pass  # nobody reads standard error any more


def _log_to_stderr():
    log.propagate = False
    if not any(isinstance(handler, _StderrHandler) for handler in log.handlers):
        log.addHandler(_StderrHandler())
