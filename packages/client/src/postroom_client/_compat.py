"""Differences between Python 2.7 and 3: text types, interrupted system calls, close-on-exec, the monotonic clock."""

import errno
import fcntl
import os
import select
import sys
import time

PY2 = sys.version_info[0] == 2

if PY2:
    from collections import OrderedDict

    text_type = unicode  # noqa: F821
    integer_types = (int, long)  # noqa: F821
    ordered_dict = OrderedDict
else:
    text_type = str
    integer_types = (int,)
    ordered_dict = dict


def _close_on_exec_flag():
    if hasattr(os, "O_CLOEXEC"):
        return os.O_CLOEXEC
    # Python 2.7 has no name for the flag. Its value is the same on Linux, except on these processors.
    odd = os.uname()[4].startswith(("alpha", "sparc", "parisc"))
    return 0o2000000 if sys.platform.startswith("linux") and not odd else 0


CLOSE_ON_EXEC = _close_on_exec_flag()
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)


def _restarting(function):
    """Return ``function`` so that it restarts when a signal interrupts it. Python 3.5 and later do so by themselves."""
    if not PY2:
        return function

    def restart(*args):
        while True:
            try:
                return function(*args)
            except (IOError, OSError) as error:
                if error.errno != errno.EINTR:
                    raise

    return restart


_os_open = _restarting(os.open)
_write = _restarting(os.write)
chmod_fd = _restarting(os.fchmod)
lock_fd = _restarting(fcntl.flock)
lstat = _restarting(os.lstat)
make_directory = _restarting(os.mkdir)
read_fd = _restarting(os.read)
remove_directory = _restarting(os.rmdir)
rename = _restarting(os.rename)
stat = _restarting(os.stat)
stat_fd = _restarting(os.fstat)
unlink = _restarting(os.unlink)


def open_fd(path, flags, mode=0):
    """Like ``os.open``, but programs that are started later do not inherit the descriptor."""
    fd = _os_open(path, flags | CLOSE_ON_EXEC, mode)
    if PY2:
        set_close_on_exec(fd)
    return fd


def set_close_on_exec(fd):
    """Do not let programs that are started later inherit ``fd``."""
    fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.fcntl(fd, fcntl.F_GETFD) | fcntl.FD_CLOEXEC)


def close_fd(fd):
    """Close ``fd``. Never repeats an interrupted close, because it has closed the descriptor."""
    try:
        os.close(fd)
    except OSError as error:
        if error.errno != errno.EINTR:
            raise


def write_all(fd, data):
    """Write all of ``data``."""
    view = memoryview(data)
    while len(view):
        view = view[_write(fd, view) :]


def poll(poller, timeout_s):
    """Poll for at most ``timeout_s``; a signal on Python 2.7 may end it early. Return what is ready."""
    try:
        return poller.poll(int(timeout_s * 1000) + 1 if timeout_s > 0 else 0)
    except select.error as error:
        if error.args[0] != errno.EINTR:
            raise
        return []


def sleep(seconds):
    """Sleep; a signal on Python 2.7 may end it early."""
    try:
        time.sleep(seconds)
    except IOError as error:
        if error.errno != errno.EINTR:
            raise


def native_path(path):
    """Return ``path`` (text, bytes or a path object) as an absolute path of the native string type."""
    return os.path.abspath(native_name(path))


def native_name(path):
    """Return ``path`` (text, bytes or a path object) as the native string type."""
    if hasattr(path, "__fspath__"):
        path = path.__fspath__()
    if PY2 and isinstance(path, text_type):
        path = path.encode("utf-8")
    elif not PY2 and isinstance(path, bytes):
        path = os.fsdecode(path)
    return path


def utf8_name(text):
    """Return ``text``, of the native string type, as a file name whose bytes are its UTF-8 in every locale."""
    return text if PY2 else os.fsdecode(text.encode("utf-8"))


def _monotonic_by_ctypes():
    import ctypes

    try:
        clock_gettime = ctypes.CDLL(None, use_errno=True).clock_gettime
    except AttributeError:  # before glibc 2.17
        clock_gettime = ctypes.CDLL("librt.so.1", use_errno=True).clock_gettime
    timespec = ctypes.c_long * 2
    clock_gettime.argtypes = (ctypes.c_int, ctypes.POINTER(timespec))
    clock_id = 6 if sys.platform == "darwin" else 1
    if clock_gettime(clock_id, timespec()) != 0:
        raise OSError(ctypes.get_errno(), "clock_gettime")

    def monotonic():
        now = timespec()
        clock_gettime(clock_id, now)
        return now[0] + now[1] * 1e-9

    return monotonic


def _find_monotonic():
    if hasattr(time, "monotonic"):
        return time.monotonic
    try:
        return _monotonic_by_ctypes()
    except (ImportError, AttributeError, OSError):
        # Without ctypes, a step of the wall clock lengthens or shortens pending requests.
        return time.time


#: Returns seconds that only go forward. Every deadline uses it.
monotonic = _find_monotonic()
