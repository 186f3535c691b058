"""Reach a root for the tools: through its daemon where one is running, else by opening it.

The one place in the daemon's package that speaks through the client: a tool beside a running daemon is a client of it.
"""

from __future__ import annotations

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
from ..root.locks import RootBusy, lock_root
from ..root.preflight import missing_import
from .local import open_local

#: A request of a tool waits so long (s) for its answer: a page of a large root may queue behind other work.
TIMEOUT_S = 60.0


class NotReached(PostroomError):
    """The daemon did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A root that answers. ``running``: a daemon works on it meanwhile."""

    ask: Ask
    running: bool

    def state(self, config: Config, workspace: Path) -> AbstractContextManager[State]:
        """All that the root holds, at one event. ``workspace`` is a directory with room for it.

        Raises ``StateError``, ``OSError``, and what ``ask`` raises.
        """
        if not self.running:
            return nullcontext(steady(self.ask))
        settings = config.settings
        return capture(self.ask, settings.journal_root, bodies_in(settings.hybrid_payload_root), workspace)


@contextmanager
def reach(config: Config) -> Iterator[Reached]:
    """A way to ask a root. A stopped root is brought up to its journal, and stays locked and unchanged meanwhile.

    Raises ``StartError`` when it cannot be opened; ``ask`` raises ``NotReached``, and ``CommandError`` when a
    stopped root refuses.
    """
    if not is_running(config):
        with open_local(config, still=True) as session:
            yield Reached(session.call, running=False)
        return
    settings = config.settings
    client = postroom_client.Client(
        str(settings.ipc_root), timeout=TIMEOUT_S, max_request_bytes=settings.limits_request_bytes
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
    """Why there is nothing to be read from a root, "" where there is something. Raises ``OSError``."""
    settings = config.settings
    if settings.journal_root.is_dir() and list_segments(settings.journal_root):
        return ""
    return missing_import(config) or "there is no journal: nothing was ever done here"


def is_running(config: Config) -> bool:
    """Whether a process works on the root. Raises ``OSError``."""
    try:
        with lock_root(config, Files()):
            return False
    except RootBusy:
        return True
