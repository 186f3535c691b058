"""The operating system's file calls, in one place that a test can replace.

The attributes of ``Files`` are the calls themselves, not wrappers, so that the seam costs nothing. A fault test passes
an object whose attributes fail, or kill the process, at the n-th call. Names are relative to the fd of a directory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

#: Errors that mean a lack of space.
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Errors of one file that cannot be read, not of the machine or of the whole disk.
LOST_ERRNOS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EIO, errno.EUCLEAN, errno.EBADMSG}
)
#: Those of them that indicate a fault of the disk rather than of the file: a later read may succeed.
DISK_ERRNOS = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG})

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


T = TypeVar("T")


def retry_after_eio(call: Callable[[], T]) -> T:
    """Call a function, and once more if the disk reported an I/O error, which may be transient.

    Raises what ``call`` raises; the second error if the first was ``EIO``.
    """
    try:
        return call()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    return call()


def _find_syncfs() -> Any:
    """syncfs(2), which Python lacks; sync(2) if the system has none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return lambda fd: os.sync()

    def syncfs(fd: int) -> None:
        if call(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return syncfs


def _find_start_writing() -> Any:
    """sync_file_range(2), which Python lacks, for a whole file and without waiting; a no-op if the system has none."""
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return lambda fd: None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    write = 2  # SYNC_FILE_RANGE_WRITE

    def start_writing(fd: int) -> None:
        """Let the kernel begin to write a file's bytes. This alone makes nothing durable: the fsync that must follow
        reports errors. If many files are started together, syncing them takes few commits of the file system."""
        call(fd, 0, 0, write)

    return start_writing


def _find_is_cached() -> Any:
    """preadv2(2) of the first byte with RWF_NOWAIT."""
    nowait, into = getattr(os, "RWF_NOWAIT", 0), [bytearray(1)]
    if not nowait:
        return lambda fd: True

    def is_cached(fd: int) -> bool:
        """Whether the beginning of a file is in memory; True if the kernel or the file system does not say."""
        try:
            os.preadv(fd, into, 0, nowait)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    return is_cached


def _will_need(fd: int, length: int) -> None:
    """Advise the kernel to read the first ``length`` bytes of a file ahead. It may ignore that."""
    try:
        os.posix_fadvise(fd, 0, length, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass


class Files:
    """The calls that the journal, the mailbox and the stores make."""

    def __init__(self) -> None:
        self.open: Any = os.open
        self.close: Any = os.close
        self.read: Any = os.read
        self.pread: Any = os.pread
        self.write: Any = os.write
        self.pwrite: Any = os.pwrite
        self.fstat: Any = os.fstat
        self.stat: Any = os.stat
        self.access: Any = os.access
        self.listdir: Any = os.listdir
        self.scandir: Any = os.scandir
        self.rename: Any = os.rename
        self.unlink: Any = os.unlink
        self.mkdir: Any = os.mkdir
        self.rmdir: Any = os.rmdir
        self.fsync: Any = os.fsync
        self.fdatasync: Any = os.fdatasync
        self.ftruncate: Any = os.ftruncate
        self.syncfs: Any = _find_syncfs()
        self.statvfs: Any = os.statvfs
        self.flock: Any = fcntl.flock
        self.allocate: Any = os.posix_fallocate
        self.start_writing: Any = _find_start_writing()
        self.is_cached: Any = _find_is_cached()
        self.will_need: Any = _will_need

    def write_all(self, fd: int, data: bytes) -> None:
        """Write all of ``data``. Raises ``OSError``; some of the bytes may have been written."""
        written = self.write(fd, data)
        while written < len(data):
            written += self.write(fd, data[written:])

    def pwrite_all(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of ``data`` at an offset. Raises ``OSError``; some of the bytes may have been written."""
        written = self.pwrite(fd, data, offset)
        while written < len(data):
            written += self.pwrite(fd, data[written:], offset + written)

    def open_directory(self, path: Path, mode: int = 0o700) -> int:
        """Open a directory and return its fd. Creates it and its parents durably if they are missing. Its last
        component must not be a symbolic link. Raises ``OSError``."""
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self.close(self.open_directory(path.parent, mode))
            self.mkdir(path, mode)
            self.sync_directory(path.parent)
        else:
            self.sync_directory(path.parent)
        try:
            fd: int = self.open(path, DIRECTORY_FLAGS)
        except NotADirectoryError as error:
            if not os.path.islink(path):
                raise
            text = f"is a symbolic link: set {os.path.realpath(path)} in the configuration, or mount that here"
            raise NotADirectoryError(error.errno, text, os.fspath(path)) from error
        return fd

    def shared_mode(self, directory: int) -> int:
        """The mode of a new file in the directory ``directory`` (an fd): the owner may read and write it, and the group
        may read it if it may list the directory."""
        return 0o600 | (int(self.fstat(directory).st_mode) & 0o040)

    def sync_directory(self, path: Path | str) -> None:
        """Make the entries of a directory durable. Raises ``OSError``."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def discard(self, name: str, directory: int) -> None:
        """Remove a file whose creation failed. Errors are ignored: the caller reports the first one."""
        try:
            self.unlink(name, dir_fd=directory)
        except OSError:
            pass

    def put(self, directory: int, name: str, data: bytes, mode: int = 0o600, durable: bool = False) -> None:
        """Write a file that appears under ``name`` with all its bytes at once. With ``durable``, a power cut leaves
        either the previous file or all of the new one. Raises ``OSError``."""
        self.put_chunks(directory, name, (data,), mode, durable)

    def put_chunks(
        self, directory: int, name: str, chunks: Iterable[bytes], mode: int = 0o600, durable: bool = False
    ) -> None:
        """Write a file in chunks, like ``put``, for contents that should not be in memory at once."""
        temporary = name + ".tmp"
        try:
            fd = self.open(temporary, CREATE_FLAGS, mode, dir_fd=directory)
        except FileExistsError:  # left by a crash: only this process writes here
            self.unlink(temporary, dir_fd=directory)
            fd = self.open(temporary, CREATE_FLAGS, mode, dir_fd=directory)
        try:
            try:
                for data in chunks:
                    written = self.write(fd, data)
                    if written < len(data):
                        self.write_all(fd, data[written:])
                if durable:
                    self.fsync(fd)
            finally:
                self.close(fd)
            self.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            self.discard(temporary, directory)  # on a full disk it would occupy the space that is left
            raise
        if durable:
            self.fsync(directory)


def remove_all(path: Path) -> None:
    """Remove a file, or a directory with its contents, if it exists. Raises ``OSError``."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
