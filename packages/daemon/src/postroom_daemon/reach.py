"""Reach a root for the tools: through its daemon where one is running, else by opening it.

The one place in the daemon's package that speaks through the client: a tool beside a running daemon is a client of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import postroom_client
from postroom_common.errors import PostroomError

from .config import Config
from .files import Files
from .local import open_local
from .locks import RootBusy, lock_root
from .state import Ask

#: A request of a tool waits so long (s) for its answer: a page of a large root may queue behind other work.
TIMEOUT_S = 60.0


class NotReached(PostroomError):
    """The daemon did not answer, or refused."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A root that answers. ``running``: a daemon works on it meanwhile."""

    ask: Ask
    running: bool


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
    with postroom_client.Client(str(config.settings.ipc_root), timeout=TIMEOUT_S) as client:

        def ask(command: str, payload: dict[str, object]) -> dict[str, object]:
            try:
                answer: dict[str, object] = client.call(command, payload)
            except postroom_client.PostroomError as error:
                raise NotReached(f"{config.root}: {error}") from error
            return answer

        yield Reached(ask, running=True)


def is_running(config: Config) -> bool:
    """Whether a process works on the root. Raises ``OSError``."""
    try:
        with lock_root(config, Files()):
            return False
    except RootBusy:
        return True
