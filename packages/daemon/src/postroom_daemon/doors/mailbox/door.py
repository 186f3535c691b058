"""The mailbox: request files become requests for the broker, answers become response files."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import Any, Final

from postroom_common.codec import Request as WireRequest
from postroom_common.codec import decode_request
from postroom_common.errors import CommandError, RequestRejected
from postroom_common.protocol import ErrorCode

from ...broker.idempotency import repeated_bytes, request_key
from ...config.settings import Settings
from ...model.principal import Principal
from ...model.request import Answer, Request, json_body
from ...platform.clock import Now
from ...platform.files import FULL_ERRNOS, Files
from ...platform.logs import about
from ...policy.access import may_use_response_dir
from ...policy.quotas import Quotas
from ..base import Door, DoorReplaced
from .codec import encode_answer
from .directories import Directories, LivenessLock, unprocessed_requests
from .rejected import RejectedRequests
from .request_files import RequestFile, RequestFiles
from .response_dirs import NoResponseDir, ResponseDir, ResponseDirs
from .scanner import Scanner
from .spill import Spill
from .sweeper import Sweeper
from .unanswerable import Unanswerable
from .watch import Watch

log = logging.getLogger(__name__)

#: Errors that may pass: what could not be done is tried again.
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE})


class MailboxReplaced(DoorReplaced):
    """Directories of the mailbox were replaced by others."""


class Mailbox(Door):
    """The directories below ``ipc.root``, opened once and used by descriptor.

    ``on_rejected`` is called with the reason when a request is rejected, ``on_foreign`` when one came under another
    user's client id, ``on_replaced`` when ``requests/`` was replaced by another directory. ``free_space`` frees disk
    space and returns whether it did. A request of a user for whom ``is_ready_for`` returns False is postponed.
    ``data_root`` is the root that commands for operators name; by default the directory of ``ipc.root``.
    Raises ``OSError``.
    """

    name = "mailbox"

    def __init__(
        self,
        settings: Settings,
        files: Files,
        on_rejected: Callable[[str], None],
        free_space: Callable[[], bool] = lambda: False,
        quotas: Quotas | None = None,
        on_foreign: Callable[[str, Request], None] | None = None,
        is_ready_for: Callable[[int], bool] = lambda uid: True,
        on_replaced: Callable[[], None] = lambda: None,
        data_root: Path | None = None,
    ) -> None:
        root: Path = settings.ipc_root
        self._quotas = quotas or Quotas(settings, os.geteuid())
        self._settings = settings
        self._files = files
        self._on_rejected = on_rejected
        self._on_foreign = on_foreign or (lambda reason, request: on_rejected(reason))
        self._free_space = free_space
        self._is_ready_for = is_ready_for
        self._on_replaced = on_replaced
        self._selector: BaseSelector | None = None
        with ExitStack() as opened:  # a failure must release the mailbox's lock: the daemon tries again
            files.close(files.open_directory(root))
            self._rejected = RejectedRequests(
                root / settings.ipc_dead_dir, files, settings.ipc_dead_max_files, settings.ipc_dead_max_age_hours
            )
            opened.callback(lambda: files.close(self._rejected.fd))
            spill = Spill(root / settings.ipc_held_dir, files)
            opened.callback(files.close, spill.fd)
            requests = RequestFiles(
                root / settings.ipc_requests_dir, spill, files, self._rejected, settings.limits_request_bytes
            )
            opened.callback(lambda: files.close(requests.fd))
            self._scanner = Scanner(
                requests,
                settings.limits_user_share_requests,
                settings.limits_user_turn_requests,
                self._quotas.may_have_pending,
            )
            self._response_dirs = ResponseDirs(root / settings.ipc_responses_dir, files)
            opened.callback(self._response_dirs.close)
            self._liveness = LivenessLock(root, files)
            opened.callback(self._liveness.close)
            others = (settings.ipc_dead_dir, settings.ipc_held_dir, settings.ipc_responses_dir)
            self._directories = Directories(root, others, files, moving=settings.ipc_requests_dir)
            opened.callback(self._directories.close)
            self._opened = opened.pop_all()
        self._requests: dict[str, Request] = {}
        self._unanswerable = Unanswerable(
            self._response_dirs,
            self._scanner,
            data_root or root.parent,
            settings.limits_user_share_requests,
            self._reject,
        )
        self._sweeper = Sweeper(settings, files, self._response_dirs, self._rejected, requests)
        self._watch = self._make_watch()
        left = unprocessed_requests(settings)
        if left:
            log.warning(
                "%s has %d requests that the C++ daemon did not finish, and that are not executed: move them to %s, or"
                " remove them",
                left[0].parent,
                len(left),
                root / settings.ipc_requests_dir,
            )

    def _make_watch(self) -> Watch | None:
        if not self._settings.ipc_use_folder_watcher:
            return None
        try:
            return Watch()
        except (OSError, ImportError) as error:
            log.warning("%s; polling every %d ms instead", error, self._settings.ipc_poll_interval_ms)
            return None

    def register(self, selector: BaseSelector) -> None:
        """See ``Door``."""
        self._selector = selector
        if self._watch:
            selector.register(self._watch, EVENT_READ, self)

    @property
    def poll_s(self) -> float | None:
        """See ``Door``."""
        return None if self._watch else self._settings.ipc_poll_interval_ms / 1000

    def reload(self, settings: Settings) -> None:
        """See ``Door``. The directories stay, and whether they are watched."""
        self._settings = self._sweeper.settings = settings
        self._rejected.max_files, self._rejected.max_age_hours = (
            settings.ipc_dead_max_files,
            settings.ipc_dead_max_age_hours,
        )

    @property
    def has_backlog(self) -> bool:
        """See ``Door``."""
        return self._scanner.has_work

    def figures(self) -> dict[str, int]:
        """See ``Door``."""
        return {
            "waiting": self._scanner.waiting,
            "dead": self._rejected.count,
            "setAside": self._rejected.taken,
            "held": self._scanner.requests.spill.count,
            "straysRemoved": self._scanner.orphans.removed,
            "unanswerable": self._unanswerable.count,
        }

    def check_health(self) -> dict[str, Any]:
        """See ``Door``."""
        return self._unanswerable.check()

    def collect(self, limit: int = sys.maxsize) -> list[Request]:
        """See ``Door``."""
        arrived = self._arm(self._watch) if self._watch and self._scanner.looks_next else None
        try:
            taken = self._scanner.take(
                min(limit, self._settings.limits_group_requests), self._settings.limits_group_bytes, arrived
            )
        except OSError:
            self._response_dirs.release()  # perhaps all descriptors are in use
            raise
        requests = []
        usable: dict[tuple[str, int], Principal] = {}  # by client id and user; looked at once a group
        for one in taken:
            try:
                request = self._request_of(one, usable)
            except OSError as error:  # an error of this request alone
                log.error("request %r is postponed: %s", one.name[:100], error)
                self._scanner.postpone(one.name, one.inode)
                continue
            if request:
                self._scanner.begin(one)
                self._requests[one.name] = request
                requests.append(request)
        if requests:
            self._sweeper.go_on()
        return requests

    def _arm(self, watch: Watch) -> list[str] | None:
        try:
            return watch.arm(self._scanner.requests.fd)
        except OSError as error:
            log.warning("%s; polling every %d ms instead", error, self._settings.ipc_poll_interval_ms)
            if self._selector:
                self._selector.unregister(watch)
            watch.close()
            self._watch = None
            return None

    def _request_of(self, taken: RequestFile, usable: dict[tuple[str, int], Principal]) -> Request | None:
        try:
            wire = decode_request(taken.data)
        except RequestRejected as error:
            if self._scanner.is_unfinished(taken):
                self._scanner.postpone(taken.name, taken.inode)
            else:
                self._reject(taken.name, error.reason)
            return None
        sender = (wire.client_id, taken.uid)
        who = usable.get(sender)
        if who is None:
            who = self._sender(taken, wire)
            if who is None:
                return None
            usable[sender] = who
        if wire.acts_as is not None:
            text = "as is for the lane: a request file comes from its owner"
            wire.problem = CommandError(ErrorCode.INVALID_REQUEST, text)
        if taken.over and not wire.problem:
            wire.problem = self._quotas.too_many_pending(taken.uid)
        return self._made(taken, wire, who)

    def _sender(self, taken: RequestFile, wire: WireRequest) -> Principal | None:
        """Who sends a request; None if it is rejected, or cannot be executed now."""
        client_id, uid = wire.client_id, taken.uid
        try:
            response_dir = self._response_dir(client_id, uid)
        except NoResponseDir as absent:
            self._reject(taken.name, str(absent))
            return None
        if not may_use_response_dir(uid, response_dir.owner):
            # It cannot be answered: the owner of that response directory would read the answer.
            text = f"client id {client_id} belongs to another user: use one of your own"
            self._scanner.reject(taken.name, text)
            self._on_foreign(text, self._made(taken, wire, Principal(client_id, uid)))
            return None
        if response_dir.problem:
            self._unanswerable.add(taken, wire, response_dir.problem)
            return None
        if not self._is_ready_for(uid):
            self._scanner.postpone(taken.name, taken.inode)
            return None
        return response_dir.client

    def _response_dir(self, client_id: str, uid: int) -> ResponseDir:
        found = self._response_dirs.look(client_id)
        if found:
            return found
        if uid != os.geteuid():
            raise NoResponseDir(f"its client has no response directory: make responses/{client_id}, mode 0770")
        while True:
            try:
                self._response_dirs.make(client_id)
                break
            except OSError as error:
                if error.errno not in FULL_ERRNOS or not self._free_space():
                    raise
        return ResponseDir(uid, "", Principal(client_id, uid))

    def _made(self, taken: RequestFile, wire: WireRequest, who: Principal) -> Request:
        return Request(
            wire,
            who,
            request_key(taken.uid, repeated_bytes(wire, taken.data) if wire.idempotency_key else taken.data),
            taken.ctime_ns // 1_000_000,
            lambda answer: self._respond(taken, answer),
            lambda: self._is_alive(taken.name),
            json_body,
            taken.size,
            self.name,
        )

    def _reject(self, name: str, reason: str) -> None:
        self._scanner.reject(name, reason)
        self._on_rejected(reason)

    def _respond(self, taken: RequestFile, answer: Answer) -> None:
        name = taken.name
        request = self._requests[name]
        wire = request.wire
        response = encode_answer(wire.request_id, answer)
        del self._requests[name]
        while True:
            try:
                self._response_dirs.put(wire.client_id, taken.uid, wire.request_id, response)
                break
            except OSError as failure:
                if failure.errno not in FULL_ERRNOS or not self._free_space():
                    self._not_answered(request, name, failure)
                    return
        try:
            self._scanner.finish(name)
        except OSError as failure:
            log.error(
                "request %r is answered and cannot be removed: %s",
                name[:100],
                failure,
                extra=about(**request.log_fields()),
            )

    def _not_answered(self, request: Request, name: str, failure: OSError) -> None:
        """A response cannot be written. The request was executed: when it is read again, it is a repeat and gets the
        first answer."""
        if self._response_dirs.note_failure(request.wire.client_id, failure) or failure.errno in _PASSING:
            log.error("the response to %r is postponed: %s", name[:100], failure, extra=about(**request.log_fields()))
            self._scanner.postpone(name)
        else:
            self._scanner.reject(name, f"the response could not be written: {failure}")

    def _is_alive(self, name: str) -> bool:
        """Whether the client of a waiting request is still there: it may have removed the file, or have died, which
        releases its lock."""
        if not self._scanner.is_there(name):
            return False
        wire = self._requests[name].wire
        if self._response_dirs.has_failed(wire.client_id):
            self._scanner.postpone(name)  # to be read again, as an unanswerable request
            del self._requests[name]
            return False
        if not wire.payload.get("waitLock"):
            return True
        fd = self._scanner.open(name)
        if fd is None:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return True  # a file system without locks: trust the client
        finally:
            self._files.close(fd)
        self._scanner.finish(name)
        del self._requests[name]
        return False

    def flush(self) -> None:
        """See ``Door``. Every answer is written by itself."""

    def tick(self, now: Now, files_wall_ms: int) -> list[Request]:
        """See ``Door``. Removes what is old, and checks the directories."""
        if self.check():
            self._on_replaced()
        gone = []
        for name in self._scanner.gone():
            if name in self._requests:
                gone.append(self._requests.pop(name))
            else:
                self._unanswerable.forget(name)
        try:
            self._unanswerable.tick(now.wall)
            self._sweeper.tick(now, files_wall_ms)
        except OSError as error:  # their waits must end all the same
            log.error("mailbox: %s", error)
        return gone

    def check(self) -> bool:
        """Whether ``requests/`` was replaced by another directory, which is served from now on. Makes removed
        directories again, and holds the liveness lock.

        Raises ``MailboxReplaced`` for other directories than ``requests/``, ``MailboxLost``, ``OSError``.
        """
        others = self._directories.replaced()
        if others:
            raise MailboxReplaced(f"{', '.join(map(str, others))} replaced by others; the mailbox is opened again")
        replaced = self._scanner.check()
        if replaced and self._watch:
            self._watch.forget()
        self._liveness.hold()
        return replaced

    def close(self) -> None:
        """See ``Door``. Requests stay where they are."""
        if self._watch:
            self._watch.close()
        self._sweeper.close()
        self._opened.close()
