"""A daemon that is a node of a cluster: its role, from its health."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from ..i18n import tr
from .text import clean, figure


class Role(StrEnum):
    """What a node does. ``WAITS``: no node leads as far as it knows, or it cannot follow the one that does."""

    LEADS = "leads"
    FOLLOWS = "follows"
    WAITS = "waits"


class Member(NamedTuple):
    """A node. ``leader`` is the node that leads and ``address`` where its clients reach it, both empty if unknown;
    ``lag`` is the number of groups that this node has not applied yet."""

    cluster: str
    role: Role
    leader: str
    address: str
    epoch: int
    lag: int
    problem: str

    def words(self) -> str:
        """Role, epoch and lag in a few words."""
        words = f"{self._role_words()} {tr('epoch')} {self.epoch}"
        return words if self.role is Role.LEADS else f"{words} {tr('lag')} {figure(self.lag)}"

    def refusal(self) -> str:
        """Why this node takes no actions, and where the leader is; empty if it leads."""
        if self.role is Role.LEADS:
            return ""
        if not self.leader:
            return tr("read-only: no node of the cluster leads at present")
        where = f"{self.leader} ({self.address})" if self.address else self.leader
        return tr("read-only: this node follows; the leader is {leader}").format(leader=clean(where))

    def _role_words(self) -> str:
        match self.role:
            case Role.LEADS:
                return tr("LEADS")
            case Role.FOLLOWS:
                return tr("FOLLOWS {leader}").format(leader=clean(self.leader))
            case Role.WAITS:
                return tr("WAITS")


def member_of(health: Mapping[str, Any]) -> Member | None:
    """The node whose answer to ``health`` this is; None if the daemon is in no cluster."""
    check: Mapping[str, Any] = (health.get("checks") or {}).get("cluster") or {}
    if not check:
        return None
    leader, is_ok = str(check.get("leader") or ""), bool(check.get("ok"))
    role = Role.LEADS if check.get("leads") else Role.FOLLOWS if leader and is_ok else Role.WAITS
    return Member(
        str(check.get("name") or ""),
        role,
        leader,
        str(check.get("address") or ""),
        int(check.get("epoch") or 0),
        int(check.get("pending") or 0),
        "" if is_ok else str(check.get("error") or ""),
    )
