"""Access rules as the configuration has them: who may do what with which queues, and which user a client id is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..platform.accounts import Accounts
from .schema import Pattern


class Verb(StrEnum):
    """The families of what can be done with a queue."""

    PUBLISH = "publish"
    CONSUME = "consume"
    BROWSE = "browse"
    OPERATE = "operate"

    __hash__ = str.__hash__  # that of enumerations costs more than a look at the rights of a user


class SubjectKind(StrEnum):
    """The kinds of those that a rule may name."""

    USER = "user"
    GROUP = "group"
    EVERYONE = "everyone"


class Subject(NamedTuple):
    """A user or a group, by name or by number; or everyone."""

    kind: SubjectKind
    name: str = ""

    @property
    def text(self) -> str:
        """As it stands in the configuration."""
        return f"{self.kind} {self.name}".rstrip()

    def number(self, accounts: Accounts) -> int | None:
        """The uid or gid; None for a name that is not known."""
        if is_number(self.name):
            return int(self.name)
        return accounts.user_id(self.name) if self.kind is SubjectKind.USER else accounts.group_id(self.name)


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What some may do, or may not, with the queue of a name, with those whose whole name matches a pattern, or with
    all."""

    who: tuple[Subject, ...]
    allow: frozenset[Verb]
    deny: frozenset[Verb]
    queue: str = ""
    pattern: str = ""
    expression: Pattern | None = None

    @property
    def decides(self) -> frozenset[Verb]:
        """The verbs of which it says something."""
        return self.allow | self.deny

    def is_about(self, queue: str) -> bool:
        """Whether a queue is meant."""
        if self.expression:
            return self.expression.matches_whole(queue)
        return self.queue in ("", queue)

    def to_wire(self) -> dict[str, Any]:
        """As it stands in the configuration."""
        told: dict[str, Any] = {"who": [one.text for one in self.who]}
        told |= {"queue": self.queue} if self.queue else {}
        told |= {"pattern": self.pattern} if self.pattern else {}
        return told | {name: in_order(verbs) for name in ("allow", "deny") if (verbs := getattr(self, name))}


#: The highest number that a user or a group may have.
ID_CEILING: Final = 2**32 - 2
#: What those may do whom no rule concerns, where there are none.
OPEN: Final = frozenset({Verb.PUBLISH, Verb.CONSUME, Verb.BROWSE})
#: Who may do everything, where the configuration names nobody.
TECHNICIANS: Final = (Subject(SubjectKind.GROUP, "postroom-ops"),)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """All that the configuration says of access. It never changes: another configuration has other ones.

    ``operators`` may do everything, beside the daemon's own user and root; ``default`` is what everyone may do where no
    rule decides; ``clients`` has the user of each client id that is registered.
    """

    operators: tuple[Subject, ...] = TECHNICIANS
    default: frozenset[Verb] = OPEN
    rules: tuple[AccessRule, ...] = ()
    clients: Mapping[str, Subject] = field(default_factory=lambda: MappingProxyType({}))

    def to_wire(self) -> dict[str, Any]:
        """As it stands in the configuration."""
        return {
            "access": {
                "operators": [one.text for one in self.operators],
                "default": in_order(self.default),
                "rules": [rule.to_wire() for rule in self.rules],
            },
            "clients": {client: one.name for client, one in self.clients.items()},
        }

    def unknown(self, accounts: Accounts) -> list[str]:
        """Warnings of users and groups that the device does not have, each once."""
        found: dict[Subject, str] = {}
        for place, one in self._named():
            if one not in found and one.number(accounts) is None and one not in TECHNICIANS:
                found[one] = f"{place}: this device has no {one.text}; nobody is meant by it as long as that is so"
        return list(found.values())

    def open_denials(self, accounts: Accounts) -> list[str]:
        """Rules that deny something to users or groups that the device does not have: they would keep nobody out."""
        return [
            f"access.rules[{at}].who: this device has no {one.text}, so that nobody would be kept out of what the rule"
            " denies: correct the name, or give the number"
            for at, rule in enumerate(self.rules)
            for one in rule.who
            if rule.deny and one.kind is not SubjectKind.EVERYONE and one.number(accounts) is None
        ]

    def _named(self) -> Iterator[tuple[str, Subject]]:
        """All users and groups that are named, with their places."""
        places = {f"access.rules[{at}]": rule.who for at, rule in enumerate(self.rules)}
        places["access.operators"] = self.operators
        places |= {f"clients.{client}": (one,) for client, one in self.clients.items()}
        for place, named in places.items():
            yield from ((place, one) for one in named if one.kind is not SubjectKind.EVERYONE)


def in_order(verbs: frozenset[Verb]) -> list[str]:
    """Verbs as they are shown."""
    return [verb.value for verb in Verb if verb in verbs]


def is_number(name: str) -> bool:
    """Whether a user or group is named by its id."""
    return name.isascii() and name.isdecimal()
