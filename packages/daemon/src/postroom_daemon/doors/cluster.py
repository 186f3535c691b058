"""The socket ``cluster.sock``, over which ``postroom-cluster`` makes this daemon a member of a cluster.

It is a door by which no requests come: a leader sends its groups and waits for their confirmation, a follower gets the
groups of the leader. It stays open while the root is opened again, which is how the role changes. Frames are those of
the lane; see ``docs/cluster-socket.md``.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from contextlib import closing, suppress
from selectors import EVENT_READ, BaseSelector
from typing import Any, Final

import orjson

from postroom_common.codec import strict_loads
from postroom_common.errors import PostroomError
from postroom_common.lane import Frame, FrameReader, FrameTooLarge, encode_frame
from postroom_common.protocol import CLUSTER_SOCKET

from ..broker.failures import MustRecover, NotConfirmed
from ..broker.following import CannotFollow, CaughtUp, apply_groups
from ..broker.role import Leader
from ..config.settings import Settings
from ..journal.journal import JournalRefused
from ..model.request import Request
from ..platform.clock import Now
from ..platform.files import DIRECTORY_FLAGS, Files
from ..root.divergent import Divergent
from ..root.open_root import OpenRoot
from ..stores.errors import StoreFull
from .base import Door
from .lane.listener import uid_of

log = logging.getLogger(__name__)

_VERSION: Final = 1
_READ_BYTES: Final = 1024 * 1024
#: The largest frame (bytes): a group, whose last request may exceed ``limits.groupBytes``.
_FRAME_BYTES: Final = 2**30
#: What a frame raises that has other fields than it should.
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)
_NO_PROCESS: Final = "postroom-cluster is not connected"


class RoleChanged(PostroomError):
    """The root is to be opened again, mostly in another role; the text says why."""


class Cluster(Door):
    """Listens in ``ipc.root``; only the daemon's own user and root may connect. ``attach`` it to each opened root."""

    name = "cluster"

    def __init__(self, settings: Settings, files: Files) -> None:
        self._settings = settings
        self._files = files
        self._divergent = Divergent(settings.journal_root, files)
        self._root: OpenRoot | None = None
        self._has_aside = True  # a file of groups that were set aside
        self._epoch = 0  # of the last group that was sent
        self._lead = 0  # the epoch in which the next opening leads; 0: it follows
        self._leads = False
        self._is_alone = False  # the connection of this leader has ended
        self._leader = Leader()
        self._cluster = ""  # its name, once the process has said it
        self._pending = self._groups = 0
        self._problem = ""
        self._peer: socket.socket | None = None
        self._has_refused = False  # another process, since this one connected
        self._reader = FrameReader(_FRAME_BYTES)
        self._epoll = select.epoll()
        self._listener: socket.socket | None = None

    def _listen(self) -> socket.socket:
        directory = self._files.open(self._settings.ipc_root, DIRECTORY_FLAGS)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            path, temporary = (
                f"/proc/self/fd/{directory}/{name}" for name in (CLUSTER_SOCKET, CLUSTER_SOCKET + ".new")
            )
            if os.path.lexists(temporary):
                os.unlink(temporary)
            listener.bind(temporary)
            os.chmod(temporary, 0o600)
            listener.listen(4)
            listener.setblocking(False)
            os.rename(temporary, path)
        except OSError:
            listener.close()
            raise
        finally:
            self._files.close(directory)
        return listener

    # --- roles ----------------------------------------------------------------------------------------------------

    def take_lead(self) -> int:
        """The epoch in which the root is to be opened as leader, once; 0: as follower."""
        lead, self._lead = self._lead, 0
        self._leads, self._is_alone = lead > 0, False
        if self._leader.node == self._settings.node_id:
            self._leader = Leader()
        return lead

    def attach(self, root: OpenRoot) -> None:
        """Begin to serve a root that was opened in the role of ``take_lead``. Raises ``NotConfirmed`` if it may not
        lead after all, ``MustRecover``, and ``OSError`` if the socket cannot be made."""
        self._root, self._has_aside = root, bool(self._divergent.names())
        if self._listener is None:  # not before the root is locked
            self._listener = self._listen()
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        if not self._leads:
            root.broker.role.leader = self._leader
            self._hello()
            return
        self._leader, self._pending = Leader(self._settings.node_id), 0
        self._hello()
        try:
            root.broker.begin_epoch(self._settings.node_id, self, root.found)
        except (JournalRefused, StoreFull) as error:
            raise MustRecover(f"{error}: this node cannot lead") from error

    def _hello(self) -> None:
        if self._root and self._peer and not self._is_alone:
            state, journal = self._root.broker.state, self._root.journal
            role = "leader" if self._leads else "follower"
            hello = {"version": _VERSION, "node": self._settings.node_id, "root": state.root_id, "epoch": state.epoch}
            self._send({"hello": {**hello, "firstId": journal.first_id(), "lastId": journal.last_id, "role": role}})

    # --- what the broker of a leader calls ------------------------------------------------------------------------

    def send(self, lines: list[bytes], last_id: int, epoch: int) -> None:
        """See ``Others``."""
        self._epoch = epoch
        header = {"first": last_id - len(lines) + 1, "last": last_id, "epoch": epoch}
        self._send({"group": header}, b"".join(lines))

    def wait(self, last_id: int) -> None:
        """See ``Others``."""
        try:
            self._wait(last_id)
        except (CannotFollow, *_MALFORMED) as error:
            raise NotConfirmed(f"an answer that cannot be read: {error!r}") from error

    def _wait(self, last_id: int) -> None:
        end_s = time.monotonic() + self._settings.cluster_confirm_ms / 1000
        while self._peer and not self._is_alone:
            frame = self._next()
            if frame is None:
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise NotConfirmed(f"no answer about event {last_id} within {self._settings.cluster_confirm_ms} ms")
                self._receive(left_s)
                continue
            header = _read(frame)
            if header.get("confirmed") == last_id and header.get("epoch", self._epoch) == self._epoch:
                self._groups += 1
                return
            if "refused" in header:
                self._note_leader(header)
                raise NotConfirmed(f"event {last_id} was refused: {header['refused']}")
            if "follow" in header:
                self._note_leader(header["follow"])
                raise NotConfirmed(f"{self._leader.node or 'another node'} leads")
        raise NotConfirmed(_NO_PROCESS)

    # --- the connection -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        if uid_of(peer) not in (0, os.geteuid()):
            peer.close()
            return
        if self._peer and not _has_hung_up(self._peer):
            self._refuse(peer)
            return
        self._drop("it was closed")
        self._peer, self._reader, self._problem = peer, FrameReader(_FRAME_BYTES), ""
        self._has_refused = False
        self._epoll.register(peer.fileno(), select.EPOLLIN)
        self._hello()

    def _refuse(self, peer: socket.socket) -> None:
        """Turn a second process away: the first one stays."""
        node = self._settings.node_id
        if not self._has_refused:  # it comes again and again
            log.warning("a second postroom-cluster was refused: one is connected already")
        self._has_refused = True
        text = f"node {node} has a postroom-cluster already: stop this one, or correct cluster.node and daemon.socket"
        with closing(peer), suppress(OSError):
            peer.setblocking(False)
            peer.sendall(encode_frame(orjson.dumps({"failed": text}), b""))

    def _drop(self, why: str) -> None:
        """End the connection, if there is one. A leader follows from its next turn or group on."""
        if self._peer is None:
            return
        self._epoll.unregister(self._peer.fileno())
        self._peer.close()
        self._peer = None
        self._is_alone = self._leads
        self._leader = Leader()
        log.warning("the cluster's connection has ended: %s", why)
        if self._root and not self._leads:
            self._root.broker.role.leader = self._leader

    def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        if self._peer:
            try:
                self._peer.settimeout(self._settings.cluster_confirm_ms / 1000)
                self._peer.sendall(encode_frame(orjson.dumps(header), body))
            except OSError as error:
                self._drop(str(error))

    def _receive(self, timeout_s: float) -> None:
        """Read what has arrived, or arrives within a time (s)."""
        peer = self._peer
        if peer is None:
            return
        try:
            peer.settimeout(timeout_s)
            data = peer.recv(_READ_BYTES)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            data = b""
        if data:
            self._reader.feed(data)
        else:
            self._drop("it was closed")

    def _next(self) -> Frame | None:
        try:
            return self._reader.next()
        except FrameTooLarge as error:
            self._drop(str(error))
            return None

    # --- frames of a turn -----------------------------------------------------------------------------------------

    def _take_all(self) -> None:
        """Do what the frames that have arrived say; groups that follow each other are applied together. Raises
        ``RoleChanged``, and as ``apply_groups``."""
        groups: list[tuple[dict[str, Any], bytes]] = []
        while self._peer and (frame := self._next()):
            header = _read(frame)
            if "apply" in header and not self._leads:
                groups.append((header["apply"], frame.body))
                continue
            self._apply(groups)
            groups.clear()
            self._take(header)
        self._apply(groups)

    def _take(self, header: dict[str, Any]) -> None:
        """Do what a frame says. Raises ``RoleChanged``, ``CannotFollow``."""
        root = self._root
        assert root is not None
        if "follow" in header:
            self._note_leader(header["follow"])
            self._problem = header["follow"].get("problem") or ""
            if self._leads:
                raise RoleChanged(f"{self._leader.node or 'another node'} leads: this node follows")
            root.broker.role.leader = self._leader
        elif "lead" in header and not self._leads:
            if shown := root.broker.role.shown_up_to:
                raise CannotFollow(f"the store shows event {shown}, and the cluster does not have it: seed this node")
            self._lead = int(header["lead"]["epoch"])
            if self._lead <= root.broker.state.epoch:
                self._lead = 0
                raise CannotFollow(f"epoch {header['lead']['epoch']} is over")
            raise RoleChanged(f"this node leads, in epoch {self._lead}")
        elif "ask" in header:
            event = root.journal.event(header["ask"])
            self._send({"id": header["ask"], "crc": event["crc"] if event else None})
        elif "truncate" in header and not self._leads:
            after = header["truncate"]["after"]
            if after != root.journal.last_id:
                raise CannotFollow(f"the store has folded the events behind {after}: seed this node")
            self._send({"truncated": after})

    def _apply(self, groups: list[tuple[dict[str, Any], bytes]]) -> None:
        root = self._root
        if not groups or root is None:
            return
        new = [body.splitlines(keepends=True) for of, body in groups if of["last"] > root.journal.last_id]
        if new:
            try:
                apply_groups(root.broker, new)
            except CaughtUp as caught_up:
                raise RoleChanged(f"{caught_up}: the root is opened again") from caught_up
            self._groups += len(new)
        for lines in new if self._has_aside else ():
            self._divergent.forget(lines)
            self._has_aside = bool(self._divergent.names())
        of, _ = groups[-1]
        self._pending = of.get("pending", 0)
        self._send({"applied": of["last"]})

    def _note_leader(self, of: dict[str, Any]) -> None:
        self._leader = Leader(of.get("leader") or "", of.get("address") or "")
        self._cluster = of.get("cluster") or self._cluster

    # --- Door -----------------------------------------------------------------------------------------------------

    def register(self, selector: BaseSelector) -> None:
        """See ``Door``."""
        selector.register(self._epoll.fileno(), EVENT_READ, self)

    @property
    def poll_s(self) -> float | None:
        """See ``Door``."""
        return None

    @property
    def has_backlog(self) -> bool:
        """See ``Door``."""
        return self._is_alone or (self._reader.held_bytes > 0 and not self._reader.missing_bytes())

    def collect(self, limit: int) -> list[Request]:
        """No requests; see ``Door``. Raises ``RoleChanged``, and as ``apply_groups``."""
        for fd, _ in self._epoll.poll(0):
            if self._peer and fd == self._peer.fileno():
                self._receive(0)
            else:
                self._accept()
        try:
            self._take_all()
        except (CannotFollow, JournalRefused, StoreFull, *_MALFORMED) as error:
            self._problem = (
                str(error) if isinstance(error, PostroomError) else f"a frame that cannot be read: {error!r}"
            )
            self._send({"failed": self._problem})
            self._drop(self._problem)
        if self._is_alone:
            raise RoleChanged(f"{_NO_PROCESS}: this node no longer leads")
        return []

    def flush(self) -> None:
        """See ``Door``."""

    def tick(self, now: Now, files_wall_ms: int) -> list[Request]:
        """See ``Door``."""
        self._send({"status": self.check_health() | self.figures()})
        return []

    def reload(self, settings: Settings) -> None:
        """See ``Door``."""
        self._settings = settings

    def figures(self) -> dict[str, int]:
        """See ``Door``."""
        epoch = self._root.broker.state.epoch if self._root else 0
        return {"leads": int(self._leads), "epoch": epoch, "pending": self._pending, "groups": self._groups}

    def check_health(self) -> dict[str, Any]:
        """See ``Door``."""
        found = len(self._root.found) if self._root and not self._leads else 0
        problem = self._problem or ("" if self._peer else f"{_NO_PROCESS}: start it")
        if found and not problem:
            problem = "the store has lost something, see the log: seed this node"
        names = {"name": self._cluster, "leader": self._leader.node, "address": self._leader.address}
        role = {"role": "leader" if self._leads else "follower", **names, **self.figures()}
        return {"ok": True, **role} if not problem else {"ok": False, "reason": "cluster", "error": problem, **role}

    def close(self) -> None:
        """See ``Door``: closed only with the daemon."""
        self._root = None
        for one in (self._peer, self._listener):
            if one:
                one.close()
        self._epoll.close()


def _has_hung_up(peer: socket.socket) -> bool:
    """Whether the process at the other end has ended, or closed its end."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    return bool(poll.poll(0))


def _read(frame: Frame) -> dict[str, Any]:
    """A frame's header. Raises ``CannotFollow``."""
    try:
        header = strict_loads(frame.header)
    except (ValueError, RecursionError) as error:
        raise CannotFollow(f"a frame that is no JSON: {error}") from None
    if type(header) is not dict:
        raise CannotFollow("a frame that is no object")
    return header
