"""Connect tools to a root: through its daemon if one is running, else by opening the root.

Only this module of the daemon uses the client: a tool beside a running daemon is a client of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import postroom_client
from postroom_common.errors import PostroomError

from ..config.config import Config
from ..journal.segments import list_segments
from ..observe.state import Ask, State, bodies_in, capture, steady
from ..platform.files import Files
from ..root.cpp_data import found_in, missing_import
from ..root.locks import LOCK_NAME, RootBusy, lock_root
from ..root.swap import MARKER_NAME
from ..stores.backends import layout_of
from .local import open_local

#: Time-out (s) of a tool's request: a page of a large root may wait behind other requests.
TIMEOUT_S = 60.0


class NotReached(PostroomError):
    """The daemon did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A root that answers commands. ``running``: by its daemon."""

    ask: Ask
    running: bool

    def state(self, config: Config, workspace: Path) -> AbstractContextManager[State]:
        """The state of the root as of one event. ``workspace`` is a directory with space for it.

        Raises ``StateError``, ``OSError``, and what ``ask`` raises.
        """
        if not self.running:
            return nullcontext(steady(self.ask))
        settings = config.settings
        return capture(self.ask, settings.journal_root, bodies_in(settings.hybrid_payload_root), workspace)


@contextmanager
def reach(config: Config) -> Iterator[Reached]:
    """Connect to a root. A stopped root is opened, which folds what its store lacks, and stays locked.

    Raises ``StartError`` if it cannot be opened. ``ask`` raises ``NotReached``, or ``CommandError`` if a stopped root
    refuses a command.
    """
    if not is_running(config):
        with open_local(config, still=True) as local:
            yield Reached(local.call, running=False)
        return
    settings = config.settings
    client = postroom_client.Client(
        str(settings.ipc_root),
        timeout=TIMEOUT_S,
        max_request_bytes=settings.limits_request_bytes,
        requests_dir=settings.ipc_requests_dir,
        responses_dir=settings.ipc_responses_dir,
        dead_dir=settings.ipc_dead_dir,
    )
    with client:

        def ask(command: str, payload: dict[str, object]) -> dict[str, object]:
            try:
                answer: dict[str, object] = client.call(command, payload)
            except postroom_client.PostroomError as error:
                raise NotReached(f"{config.root}: {error}") from error
            return answer

        yield Reached(ask, running=True)


def nothing_done(config: Config) -> str:
    """Why a root has nothing to read; "" if it has something. Raises ``OSError``."""
    settings = config.settings
    if settings.journal_root.is_dir() and list_segments(settings.journal_root):
        return ""
    return missing_import(config) or "there is no journal: no daemon has ever run here"


def no_root(config: Config) -> str:
    """Why a directory is not a root: nothing in it was made by a daemon or for one; "" if something was."""
    root, settings = config.root, config.settings
    signs = (config.file, root / LOCK_NAME, root / MARKER_NAME, settings.journal_root)
    if any(sign and os.path.lexists(sign) for sign in signs) or layout_of(settings).exists() or found_in(settings):
        return ""
    return (
        f"{root} is not a root: it has no configuration, no journal and no {settings.backend} store;"
        " correct --root, or mount the file system that contains the root"
    )


def is_running(config: Config) -> bool:
    """Whether another process has the root locked. Raises ``OSError``."""
    try:
        with lock_root(config, Files()):
            return False
    except RootBusy:
        return True
