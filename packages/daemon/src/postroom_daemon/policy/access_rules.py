"""Access rules as configured: who may do what in which queues, and which user may use a client id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..platform.accounts import Accounts
from .schema import Pattern


class Verb(StrEnum):
    """The permissions in a queue."""

    PUBLISH = "publish"
    CONSUME = "consume"
    BROWSE = "browse"
    OPERATE = "operate"

    __hash__ = str.__hash__  # the hash of enumerations costs more than a lookup of permissions


class SubjectKind(StrEnum):
    """The kinds of subjects that a rule may name."""

    USER = "user"
    GROUP = "group"
    PRINCIPAL = "principal"
    EVERYONE = "everyone"


class Subject(NamedTuple):
    """A user or a group, by name or by number; a principal that is no local user, ``scheme:name``, or all of a scheme,
    ``scheme:*``; or everyone."""

    kind: SubjectKind
    name: str = ""

    @property
    def text(self) -> str:
        """As it is written in the configuration."""
        return f"{self.kind} {self.name}".rstrip()

    @property
    def is_of_device(self) -> bool:
        """Whether the device's databases say who it is."""
        return self.kind in (SubjectKind.USER, SubjectKind.GROUP)

    def number(self, accounts: Accounts) -> int | None:
        """The uid or gid; None for an unknown name. Call this only if ``is_of_device``."""
        if is_number(self.name):
            return int(self.name)
        return accounts.user_id(self.name) if self.kind is SubjectKind.USER else accounts.group_id(self.name)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What some subjects may or may not do with one queue, with the queues whose whole name matches a pattern, or with
    all queues."""

    who: tuple[Subject, ...]
    allow: frozenset[Verb]
    deny: frozenset[Verb]
    queue: str = ""
    pattern: str = ""
    expression: Pattern | None = None

    @property
    def decides(self) -> frozenset[Verb]:
        """The verbs that it allows or denies."""
        return self.allow | self.deny

    def is_about(self, queue: str) -> bool:
        """Whether the rule applies to a queue."""
        if self.expression:
            return self.expression.matches_whole(queue)
        return self.queue in ("", queue)

    def to_wire(self) -> dict[str, Any]:
        """As it is written in the configuration."""
        wire: dict[str, Any] = {"who": [one.text for one in self.who]}
        wire |= {"queue": self.queue} if self.queue else {}
        wire |= {"pattern": self.pattern} if self.pattern else {}
        return wire | {name: in_order(verbs) for name in ("allow", "deny") if (verbs := getattr(self, name))}


#: The highest id of a user or group.
ID_CEILING: Final = 2**32 - 2
#: The default permissions if there are no rules.
OPEN: Final = frozenset({Verb.PUBLISH, Verb.CONSUME, Verb.BROWSE})
#: The operators if the configuration names none.
TECHNICIANS: Final = (Subject(SubjectKind.GROUP, "postroom-ops"),)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Everything that a configuration says about access; immutable.

    ``operators`` may do everything, like the daemon's own user and root. ``default`` is what everyone may do if no rule
    decides. ``clients`` maps each registered client id to its user. ``gateways`` are the users whose processes may name
    the principals for which they send requests (``gateway.users``).
    """

    operators: tuple[Subject, ...] = TECHNICIANS
    default: frozenset[Verb] = OPEN
    rules: tuple[AccessRule, ...] = ()
    clients: Mapping[str, Subject] = field(default_factory=lambda: MappingProxyType({}))
    gateways: tuple[Subject, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """As it is written in the configuration."""
        return {
            "access": {
                "operators": [one.text for one in self.operators],
                "default": in_order(self.default),
                "rules": [rule.to_wire() for rule in self.rules],
            },
            "clients": {client: one.name for client, one in self.clients.items()},
        }

    def unknown(self, accounts: Accounts) -> list[str]:
        """Warnings about users and groups that the device does not have, one for each."""
        warnings: dict[Subject, str] = {}
        for place, one in self._named():
            if one not in warnings and one.number(accounts) is None and one not in TECHNICIANS:
                warnings[one] = f"{place}: this device has no {one.text}; the entry has no effect until it exists"
        return list(warnings.values())

    def open_denials(self, accounts: Accounts) -> list[str]:
        """Errors about rules that deny something to users or groups that the device does not have: they deny nobody."""
        return [
            f"access.rules[{at}].who: this device has no {one.text}, so the rule would deny nobody anything:"
            " correct the name, or give the number"
            for at, rule in enumerate(self.rules)
            for one in rule.who
            if rule.deny and one.is_of_device and one.number(accounts) is None
        ]

    def _named(self) -> Iterator[tuple[str, Subject]]:
        """All users and groups that are named, with their keys in the configuration."""
        places = {f"access.rules[{at}]": rule.who for at, rule in enumerate(self.rules)}
        places["access.operators"] = self.operators
        places |= {f"clients.{client}": (one,) for client, one in self.clients.items()}
        places["gateway.users"] = self.gateways
        for place, named in places.items():
            yield from ((place, one) for one in named if one.is_of_device)


def in_order(verbs: frozenset[Verb]) -> list[str]:
    """Verbs as a list in a fixed order."""
    return [verb.value for verb in Verb if verb in verbs]


def is_number(name: str) -> bool:
    """Whether a user or group is given by number."""
    return name.isascii() and name.isdecimal()
