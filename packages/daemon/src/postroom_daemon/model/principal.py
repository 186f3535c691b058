"""Who makes a request."""

from __future__ import annotations

from typing import Any, NamedTuple

Account = int | str
"""What a door has verified: the uid of a local process, or ``scheme:name`` (``token:scanner-7``, ``node:b``) of a
principal that came by another way. Only a local door makes a uid of it, so that nobody from elsewhere is a master."""


class Principal(NamedTuple):
    """Who makes a request: a client id, which is only a name, and the account that owns it."""

    client_id: str
    account: Account

    def event_fields(self) -> dict[str, Any]:
        """How an event records the account: ``uid``, or ``principal`` for one without a uid."""
        return {self.field: self.account}

    @property
    def field(self) -> str:
        """The name by which an event records the account."""
        return "uid" if type(self.account) is int else "principal"


def name_of(account: Account) -> str:
    """An account as messages name it: ``uid 1000``, ``token:scanner-7``."""
    return f"uid {account}" if type(account) is int else str(account)


def stored_account(event: dict[str, Any]) -> str:
    """The account that an event records, as a store has it: the digits of a uid, or ``scheme:name``; '' without one."""
    return str(event.get("uid", event.get("principal", "")))


def account_fields(stored: str) -> dict[str, Any]:
    """A stored account as replies show it: ``uid``, or ``principal``."""
    return {"uid": int(stored)} if stored.isdigit() else {"principal": stored}
