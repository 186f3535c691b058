"""Access rules for the users of a test, who need no account on the device; and their requests."""

from __future__ import annotations

from typing import Any, Final

from postroom_daemon.config.access_file import read_access
from tests.conformance.bench import Bench, Sent

Fields = dict[str, Any]

ALICE: Final = 54001
BOB: Final = 54002
FORBIDDEN: Final = "ERR_FORBIDDEN"


def allow(*rules: Fields, default: tuple[str, ...] = (), **more: Any) -> Fields:
    """An access configuration."""
    return {"access": {"rules": list(rules), "default": list(default), **more}}


def for_user(uid: int, *verbs: str, **about: str) -> Fields:
    return {"who": [f"user {uid}"], "allow": list(verbs), **about}


def use(bench: Bench, tree: Fields) -> None:
    """Put an access configuration into force."""
    bench.live.access.use(read_access(tree, "file"))


def as_user(bench: Bench, uid: int, command: str, **payload: Any) -> Sent:
    """Send a request of a user, in a group of its own."""
    sent = bench.make(command, client=f"client-{uid}", uid=uid, **payload)
    bench.run(sent)
    return sent
