"""Several processes that each run a worker."""

import errno
import os
import select
import signal
import sys
import traceback

from ._compat import close_fd, poll, read_fd, set_close_on_exec, sleep, write_all
from .errors import WorkerFailed

#: Seconds after which a process that a signal has killed is replaced.
_REPLACE_S = 1.0
_LOOK_EVERY_S = 1.0
_SLICE_S = 0.05


class Processes(object):
    """Forks ``count`` processes that run ``run(parent)``, and waits for them. See ``Client.worker``."""

    def __init__(self, count, run, stop_signals, stop):
        self._count = count
        self._run = run
        self._stop_signals = stop_signals or ()
        self._stop = stop
        self._stopping = False
        self._parent = os.getpid()
        self._pids = {}  # each with the descriptor from which its count is read
        self._total = 0

    def run(self):
        """What the processes have worked on. One that a signal has killed is replaced.

        Raises ``WorkerFailed`` when one ended with an error: the others are stopped first.
        """
        before = [(number, signal.signal(number, self._pass_on)) for number in self._stop_signals]
        failed = None
        try:
            for _ in range(self._count):
                self._fork(before)
            while self._pids:
                self._wait()
                if not self._stopping and self._stop and self._stop():
                    self._pass_on(signal.SIGTERM, None)
                for pid, status in self._ended():
                    if os.WIFSIGNALED(status) and not self._stopping:
                        sleep(_REPLACE_S)
                        if not self._stopping:
                            self._fork(before)
                    elif status and not self._stopping:
                        failed = pid
                        self._pass_on(signal.SIGTERM, None)
        except BaseException:
            self._pass_on(signal.SIGTERM, None)
            raise
        finally:
            for number, handler in before:
                signal.signal(number, handler)
        if failed:
            raise WorkerFailed("process %d of the worker ended with an error: see its standard error" % failed)
        return self._total

    def _pass_on(self, number, frame):
        self._stopping = True
        if os.getpid() == self._parent:
            for pid in list(self._pids):
                self._tell(pid, number)

    def _tell(self, pid, number):
        try:
            os.kill(pid, number)
        except OSError as error:
            if error.errno != errno.ESRCH:
                raise

    def _fork(self, before):
        sys.stdout.flush()
        sys.stderr.flush()
        reading_fd, writing_fd = os.pipe()
        set_close_on_exec(reading_fd)
        set_close_on_exec(writing_fd)
        pid = os.fork()
        if pid == 0:
            close_fd(reading_fd)
            os._exit(self._be_child(writing_fd, before))
        close_fd(writing_fd)
        self._pids[pid] = reading_fd
        if self._stopping:  # RACE: the signal came before the child could be told
            self._tell(pid, signal.SIGTERM)

    def _be_child(self, writing_fd, before):
        """Run the worker; the status to exit with."""
        status = 1
        try:
            for number, handler in before:
                signal.signal(number, handler)
            for fd in self._pids.values():
                close_fd(fd)
            if not self._stopping:
                count = self._run(self._parent)
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
        """Wait until a process may have ended: the end of its pipe is its own."""
        poller = select.poll()
        for fd in self._pids.values():
            poller.register(fd, select.POLLIN)
        poll(poller, _LOOK_EVERY_S)

    def _ended(self):
        """The processes that have ended, each with its status."""
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
            sleep(_SLICE_S)  # a process may end its pipe long before itself
        return ended


def _status_of(pid):
    """The status with which a child has ended, None while it runs."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except OSError as error:
        if error.errno != errno.ECHILD:
            raise
        return 0  # somebody else has asked, or nobody wants to know
    return status if done else None
