"""The socket ``lane.sock``, to which clients connect."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Final

from postroom_common.protocol import LANE_SOCKET

from ...config.settings import Settings
from ...platform.files import DIRECTORY_FLAGS, Files

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_ACCEPTED_AT_ONCE: Final = 64


class Listener:
    """The listening socket in ``ipc.root``. It takes the place of one that another run has left. Raises ``OSError``."""

    def __init__(self, settings: Settings, files: Files) -> None:
        self._settings = settings
        self._files = files
        self._directory = files.open(settings.ipc_root, DIRECTORY_FLAGS)
        self._identity = self._shared_like = (0, 0)
        try:
            self._socket = self._listen()
        except OSError:
            files.close(self._directory)
            raise

    @property
    def fd(self) -> int:
        """The descriptor that is readable when somebody connects."""
        return self._socket.fileno()

    def accept(self) -> Iterator[tuple[socket.socket, int]]:
        """Those who have connected, each with the uid of its process. Raises ``OSError`` if the operating system has no
        descriptors now: they stay connected, and wait."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, _ = self._socket.accept()
            except ConnectionError:
                continue
            except BlockingIOError:
                return
            try:
                uid = uid_of(peer)
            except OSError:
                peer.close()
                continue
            yield peer, uid

    def renew(self) -> bool:
        """If the name of the socket is gone, or another's, listen at another one; returns whether that was done. Let
        those connect who may write into ``requests/`` now. Raises ``OSError``."""
        try:
            found = self._files.stat(LANE_SOCKET, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            before, self._socket = self._socket, self._listen()
            before.close()
            return True
        requests = self._requests()
        if (requests.st_mode, requests.st_gid) != self._shared_like:
            self._share(LANE_SOCKET)
        return False

    def close(self) -> None:
        """Close the socket. Its name stays: the next run replaces it."""
        self._socket.close()
        self._files.close(self._directory)

    def _listen(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        temporary = LANE_SOCKET + ".new"
        try:
            try:
                self._files.unlink(temporary, dir_fd=self._directory)
            except FileNotFoundError:
                pass
            listening.setblocking(False)
            # By way of the descriptor, because the path of a socket has at most 107 bytes.
            listening.bind(f"/proc/self/fd/{self._directory}/{temporary}")
            self._share(temporary)
            listening.listen(128)
            made = self._files.stat(temporary, dir_fd=self._directory)
            self._identity = (made.st_dev, made.st_ino)
            self._files.rename(temporary, LANE_SOCKET, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError:
            listening.close()
            raise
        return listening

    def _share(self, name: str) -> None:
        """Let those connect who may write into ``requests/``."""
        requests = self._requests()
        path = f"/proc/self/fd/{self._directory}/{name}"
        mode = 0o600 | requests.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if self._has_list():  # the bits of the group are then those of the list: its members use files
            mode &= ~stat.S_IWGRP
        try:
            os.chown(path, -1, requests.st_gid)
        except PermissionError:  # not a group of the daemon's: its members use files
            mode &= ~stat.S_IWGRP
        os.chmod(path, mode)
        self._shared_like = (requests.st_mode, requests.st_gid)

    def _requests(self) -> os.stat_result:
        status: os.stat_result = self._files.stat(self._settings.ipc_requests_dir, dir_fd=self._directory)
        return status

    def _has_list(self) -> bool:
        """Whether ``requests/`` has an access control list."""
        path = f"/proc/self/fd/{self._directory}/{self._settings.ipc_requests_dir}"
        try:
            return "system.posix_acl_access" in os.listxattr(path)
        except OSError:  # the file system has none
            return False


def uid_of(peer: socket.socket) -> int:
    """The uid of the process that has connected, as the kernel knows it. Raises ``OSError``."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(data)[1]
    return uid
