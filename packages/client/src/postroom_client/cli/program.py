"""A program that processes a message: its standard input, its environment, what its exit status means."""

import errno
import fcntl
import os
import select
import signal
import subprocess
import tempfile

from .._codec import Binary
from .._compat import PY2, close_fd, monotonic, poll, read_fd, set_close_on_exec, text_type, write_all
from .._delivery import Reject, Retry
from .._processing import CannotProcess, shorten_reason

#: The exit status that rejects a message: EX_DATAERR of sysexits.h.
REJECTED_STATUS = 65
#: Seconds from SIGTERM to SIGKILL when the time limit of a program is over.
GRACE_S = 10.0
#: The longest attributes in the environment, in bytes: Linux refuses variables above 128 KiB.
ATTRIBUTES_BYTES = 100000
_CHECK_EVERY_S = 1.0
_TAIL_BYTES = 4096

#: Environment variables without their prefix, and the fields of the message that they have.
VARIABLES = (
    ("MESSAGE_KEY", "messageKey"),
    ("MESSAGE_ID", "messageId"),
    ("QUEUE", "queue"),
    ("ATTEMPT", "attempt"),
    ("ATTRIBUTES", "attributes"),
    ("PRIORITY", "priority"),
    ("CREATED_AT", "createdAt"),
    ("CONTENT_TYPE", "contentType"),
    ("TYPE", "type"),
    ("VERSION", "version"),
    ("TIMESTAMP", "timestamp"),
    ("TRACE_ID", "traceId"),
    ("TRACEPARENT", "traceparent"),
    ("CORRELATION_ID", "correlationId"),
    ("REPLY_TO", "replyTo"),
    ("DEDUPLICATION_KEY", "deduplicationKey"),
    ("TARGET_CONSUMER_ID", "targetConsumerId"),
    ("REASON_CODE", "reasonCode"),
    ("REASON", "reasonMessage"),
)


class Program(object):
    """A handler for a worker that runs a program for each delivery, and raises the exception that its failure means.

    ``mailbox`` has the environment variables by which the program reaches the same mailbox. It is a context manager:
    signals wake it inside of the ``with`` statement only. ``stop_signal`` is a function that returns the signal to pass
    on to the program, or None.
    """

    def __init__(self, arguments, mailbox, timeout_s=None, quiet=False):
        self._arguments = arguments
        self._mailbox = mailbox
        self._timeout_s = timeout_s
        self._quiet = quiet
        self._woken_fd = self._wake_fd = -1
        self.stop_signal = lambda: None

    def __enter__(self):
        self._woken_fd, self._wake_fd = os.pipe()
        for fd in (self._woken_fd, self._wake_fd):
            set_close_on_exec(fd)
            _set_nonblocking(fd)
        self._before = (signal.signal(signal.SIGCHLD, lambda number, frame: None), signal.set_wakeup_fd(self._wake_fd))
        return self

    def __exit__(self, *exc_info):
        handler, wakeup_fd = self._before
        signal.set_wakeup_fd(wakeup_fd)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if handler is None else handler)
        close_fd(self._woken_fd)
        close_fd(self._wake_fd)

    def __call__(self, delivery):
        with tempfile.TemporaryFile() as body:
            body.write(_bytes_of(delivery.payload))
            body.seek(0)
            process = self._start(body, self._environment(delivery))
        stderr = _StderrReader(process.stderr.fileno())
        try:
            timed_out, stopped = self._wait_for_end(process, stderr)
        except BaseException:
            _signal_group(process, signal.SIGKILL)
            process.wait()
            raise
        finally:
            stderr.read()
            process.stderr.close()
        self._raise_failure(process.returncode, stderr.last_line(), timed_out, stopped)

    def _start(self, body, environment):
        options = {"preexec_fn": _start_session} if PY2 else {"start_new_session": True}
        try:
            return subprocess.Popen(
                self._arguments,
                stdin=body,
                stdout=2 if self._quiet else None,
                stderr=subprocess.PIPE,
                env=environment,
                close_fds=not PY2,  # there it is slow, and all descriptors are closed by themselves
                **options
            )
        except (IOError, OSError) as error:
            raise CannotProcess("cannot run %r: %s" % (self._arguments[0], os.strerror(error.errno)))

    def _environment(self, delivery):
        """Return the environment of this process with the mailbox and the headers of the message, as bytes."""
        prefix = b"POSTROOM_"
        environment = dict(os.environ if PY2 else os.environb)
        headers = dict(delivery.failure or {}, **delivery.message)  # a dead letter has the reason for its death, too
        for name, field in VARIABLES:
            variable = prefix + name.encode("ascii")
            environment.pop(variable, None)
            value = headers.get(field)
            if value is None:
                continue
            text = value if isinstance(value, text_type) else text_type(value)
            data = text.encode("utf-8")
            if b"\0" not in data and not (name == "ATTRIBUTES" and len(data) > ATTRIBUTES_BYTES):
                environment[variable] = data
        for name, value in self._mailbox.items():
            environment[name.encode("ascii")] = value if isinstance(value, bytes) else os.fsencode(value)
        return environment

    def _wait_for_end(self, process, stderr):
        """Wait for the end of the process. Return whether its time was over, and the signal that was passed on."""
        end_at = None if self._timeout_s is None else monotonic() + self._timeout_s
        kill_at = passed_on = None
        while process.poll() is None:
            now = monotonic()
            stop_signal = self.stop_signal()
            if stop_signal is not None and passed_on is None:
                passed_on = stop_signal
                _signal_group(process, stop_signal)
            if end_at is not None and now >= end_at and kill_at is None:
                kill_at = now + GRACE_S
                _signal_group(process, signal.SIGTERM)
            if kill_at is not None and now >= kill_at:
                _signal_group(process, signal.SIGKILL)
            next_at = end_at if kill_at is None else kill_at
            self._wait(stderr, _CHECK_EVERY_S if next_at is None else max(0.001, min(_CHECK_EVERY_S, next_at - now)))
        return kill_at is not None, passed_on

    def _wait(self, stderr, wait_s):
        poller = select.poll()
        poller.register(self._woken_fd, select.POLLIN)
        if stderr.fd is not None:
            poller.register(stderr.fd, select.POLLIN)
        poll(poller, wait_s)
        _read(self._woken_fd)
        stderr.read()

    def _raise_failure(self, status, last_line, timed_out, stopped):
        """Raise the exception that the exit status means, unless it is 0."""
        if status == 0:
            return
        if timed_out:
            how = "stopped after %g s, the time limit" % self._timeout_s
        elif status < 0:
            how = "killed by signal %d" % -status
        else:
            how = "exit status %d" % status
        if stopped is not None and status in (-stopped, 128 + stopped):
            raise CannotProcess(how)  # because postroom stops: this does not count as an attempt
        reason = shorten_reason(u"%s: %s" % (how, last_line) if last_line else text_type(how))
        if status == REJECTED_STATUS and not timed_out:
            raise Reject(reason)
        raise Retry(reason)


class _StderrReader(object):
    """Passes on what a program writes to its standard error, and remembers the end of it."""

    def __init__(self, fd):
        self.fd = fd
        self._tail = b""
        _set_nonblocking(fd)

    def read(self):
        """Pass on what can be read now."""
        while self.fd is not None:
            data = _read(self.fd)
            if data is None:
                return
            if not data:
                self.fd = None
                return
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            try:
                write_all(2, data)
            except (IOError, OSError):
                pass  # nobody reads it any more: that is not the program's fault

    def last_line(self):
        """Return the last line that is not empty."""
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        return ([u""] + [line for line in lines if line])[-1]


def _bytes_of(body):
    if isinstance(body, Binary):
        return body.data
    return body if isinstance(body, bytes) else body.encode("utf-8")


def _start_session():
    os.setsid()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, which a program would inherit


def _signal_group(process, number):
    try:
        os.killpg(process.pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def _set_nonblocking(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)


def _read(fd):
    """Return what can be read now: None if there is nothing yet, empty at the end."""
    try:
        return read_fd(fd, 65536)
    except (IOError, OSError) as error:
        if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK):
            raise
        return None
