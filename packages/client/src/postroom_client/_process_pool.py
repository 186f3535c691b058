"""A worker in several processes."""

import errno
import os
import select
import signal
import sys
import traceback

from ._compat import close_fd, poll, read_fd, set_close_on_exec, sleep, write_all
from .errors import WorkerFailed

#: Seconds until a process that a signal has killed is replaced.
_REPLACE_S = 1.0
_CHECK_EVERY_S = 1.0
_SLICE_S = 0.05


class ProcessPool(object):
    """Forks ``count`` processes that call ``run(pool)``, and waits for them. See ``Client.worker``.

    A process that has just been forked may lose a signal: Python drops what comes before it is ready, and what comes
    while a handler is replaced by none. So the handler stays until the worker has set its own, and a byte in a pipe
    says the same as the signal.
    """

    def __init__(self, count, run, stop_signals, stop):
        self._count = count
        self._run = run
        self._stop_signals = stop_signals or ()
        self._stop = stop
        self._stopping = False
        self._parent = os.getpid()
        self._pids = {}  # each with the descriptor of the pipe through which it reports its count
        self._told_fd = self._telling_fd = None  # of the pipe with a byte in it once all are to stop
        self._total = 0

    def run(self):
        """Return how many messages all processes have processed. A process that a signal has killed is replaced.

        Raises ``WorkerFailed`` if one ends with an error, after the others have stopped.
        """
        self._told_fd, self._telling_fd = _pipe()
        previous = []
        failed = None
        try:
            for number in self._stop_signals:
                previous.append((number, signal.signal(number, self._forward_signal)))
            for _ in range(self._count):
                self._fork()
            while self._pids:
                self._wait()
                if not self._stopping and self._stop and self._stop():
                    self._forward_signal(signal.SIGTERM, None)
                for pid, status in self._take_ended():
                    if os.WIFSIGNALED(status) and not self._stopping:
                        sleep(_REPLACE_S)
                        if not self._stopping:
                            self._fork()
                    elif status and not self._stopping:
                        failed = pid
                        self._forward_signal(signal.SIGTERM, None)
        except BaseException:
            self._forward_signal(signal.SIGTERM, None)
            raise
        finally:
            for number, handler in previous:
                signal.signal(number, handler)
            close_fd(self._told_fd)
            close_fd(self._telling_fd)
        if failed:
            raise WorkerFailed("process %d of the worker ended with an error: see its standard error" % failed)
        return self._total

    def is_over(self):
        """Return whether the process that asks is to stop, because its parent was told to, or has ended."""
        if self._stopping or os.getppid() != self._parent:
            return True
        poller = select.poll()
        poller.register(self._told_fd, select.POLLIN)
        return bool(poll(poller, 0))

    def _forward_signal(self, number, frame):
        was_stopping, self._stopping = self._stopping, True
        if os.getpid() == self._parent:
            if not was_stopping:
                write_all(self._telling_fd, b".")
            for pid in list(self._pids):
                self._kill(pid, number)

    def _kill(self, pid, number):
        try:
            os.kill(pid, number)
        except OSError as error:
            if error.errno != errno.ESRCH:
                raise

    def _fork(self):
        sys.stdout.flush()
        sys.stderr.flush()
        reading_fd, writing_fd = _pipe()
        pid = os.fork()
        if pid == 0:
            close_fd(reading_fd)
            os._exit(self._run_child(writing_fd))
        close_fd(writing_fd)
        self._pids[pid] = reading_fd
        if self._stopping:  # RACE: the signal came before the child was in the list
            self._kill(pid, signal.SIGTERM)

    def _run_child(self, writing_fd):
        """Run the worker. Return the exit status."""
        status = 1
        try:
            for fd in [self._telling_fd] + list(self._pids.values()):
                close_fd(fd)
            if not self.is_over():
                count = self._run(self)
                if os.getppid() == self._parent:
                    write_all(writing_fd, str(count).encode("ascii"))
            status = 0
        except KeyboardInterrupt:
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (IOError, OSError, ValueError):
                    pass
        return status

    def _wait(self):
        """Wait until a process may have ended: its end closes its pipe."""
        poller = select.poll()
        for fd in self._pids.values():
            poller.register(fd, select.POLLIN)
        poll(poller, _CHECK_EVERY_S)

    def _take_ended(self):
        """Remove the processes that have ended. Return their pids and statuses."""
        ended = []
        for pid, fd in list(self._pids.items()):
            status = _status_of(pid)
            if status is None:
                continue
            text = read_fd(fd, 32)
            self._total += int(text) if text else 0
            close_fd(fd)
            del self._pids[pid]
            ended.append((pid, status))
        if not ended:
            sleep(_SLICE_S)  # a process may close its pipe long before it ends
        return ended


def _pipe():
    """Return the descriptors for reading and for writing; programs that are started later do not inherit them."""
    fds = os.pipe()
    for fd in fds:
        set_close_on_exec(fd)
    return fds


def _status_of(pid):
    """Return the status of a child that has ended, None while it runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except OSError as error:
        if error.errno != errno.ECHILD:
            raise
        return 0  # somebody else has waited for it, or SIGCHLD is ignored
    return status if done else None
