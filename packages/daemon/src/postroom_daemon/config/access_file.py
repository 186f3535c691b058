"""Reads ``access``, ``clients`` and ``quotas`` in the configuration file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from postroom_common.errors import ConfigurationError
from postroom_common.protocol import ID_RULE, is_id, is_principal, queue_name_problem
from postroom_common.settings import shown

from ..policy.access_rules import (
    ID_CEILING,
    OPEN,
    TECHNICIANS,
    AccessRule,
    AccessRules,
    Subject,
    SubjectKind,
    Verb,
    in_order,
    is_number,
)
from ..policy.quotas import NUMBERS, QuotaRule
from ..policy.schema import Pattern
from .tree import expect, refuse_unknown_keys

#: Maximum number of rules: a user who names queue after queue has all rules checked each time.
RULES_LIMIT: Final = 200
#: The highest number of a quota.
QUOTA_CEILING: Final = 2**40
_NAME: Final = re.compile(r"(?! )[^:,/\x00-\x1f\x7f]{1,256}(?<! )")


def read_access(tree: Mapping[str, Any], where: str) -> AccessRules:
    """The access rules of the configuration file ``where``.

    Raises ``ConfigurationError`` with the key and what is expected.
    """
    clients = _clients(tree.get("clients", {}), f"{where}: clients")
    if "access" not in tree:
        return AccessRules(clients=clients)
    place = f"{where}: access"
    access = expect(tree["access"], dict, place)
    refuse_unknown_keys(access, ("operators", "default", "rules"), place)
    rules = _rules(access.get("rules", []), f"{place}.rules")
    if rules and "default" not in access:
        raise ConfigurationError(
            f"{place}.default: is required with rules: what is allowed if no rule decides; [] for nothing, or"
            f" {shown(in_order(OPEN))} as without rules"
        )
    operators = _who(access["operators"], f"{place}.operators") if "operators" in access else TECHNICIANS
    default = _verbs(access["default"], f"{place}.default") if "default" in access else OPEN
    return AccessRules(operators, default, rules, clients)


def read_quotas(entries: Any, where: str) -> tuple[QuotaRule, ...]:
    """The quotas of single users and principals. Raises ``ConfigurationError``."""
    if len(expect(entries, list, where)) > RULES_LIMIT:
        raise ConfigurationError(f"{where}: at most {RULES_LIMIT:,} entries, not {len(entries):,}")
    return tuple(_quota(entry, f"{where}[{at}]") for at, entry in enumerate(entries))


def _quota(entry: Any, where: str) -> QuotaRule:
    refuse_unknown_keys(expect(entry, dict, where), ("who", *NUMBERS), where)
    who = _who(entry.get("who"), f"{where}.who")
    if not who or any(one.kind is SubjectKind.GROUP for one in who):
        raise ConfigurationError(f"{where}.who: name users or principals, or everyone; groups have no quotas")
    most = {name: entry[name] for name in NUMBERS if name in entry}
    for name, number in most.items():
        if not 0 <= expect(number, int, f"{where}.{name}") <= QUOTA_CEILING:
            raise ConfigurationError(f"{where}.{name}: expected 0 (no limit) to {QUOTA_CEILING:,}, got {number:,}")
    if not most:
        raise ConfigurationError(f"{where}: has no quota; expected one of: {', '.join(NUMBERS)}")
    return QuotaRule(who, most)


def read_users(text: str, where: str) -> tuple[Subject, ...]:
    """The users of a setting that names some, separated by commas. Raises ``ConfigurationError``."""
    names = [name.strip(" ") for name in text.split(",")] if text.strip(" ") else []
    for name in names:
        if not _is_name(name):
            raise ConfigurationError(f"{where}: expected names or numbers of users, got {shown(name)}")
    return tuple(Subject(SubjectKind.USER, name) for name in names)


def _rules(entries: Any, where: str) -> tuple[AccessRule, ...]:
    if len(expect(entries, list, where)) > RULES_LIMIT:
        raise ConfigurationError(f"{where}: at most {RULES_LIMIT:,} rules, not {len(entries):,}")
    return tuple(_rule(entry, f"{where}[{at}]") for at, entry in enumerate(entries))


def _rule(entry: Any, where: str) -> AccessRule:
    refuse_unknown_keys(expect(entry, dict, where), ("who", "queue", "pattern", "allow", "deny"), where)
    who = _who(entry.get("who"), f"{where}.who")
    if not who:
        raise ConfigurationError(f"{where}.who: is empty: name a user or group, or everyone")
    allow, deny = (_verbs(entry.get(name, []), f"{where}.{name}") for name in ("allow", "deny"))
    if not allow and not deny:
        raise ConfigurationError(f"{where}: has neither allow nor deny: name a verb in one of them")
    if allow & deny:
        raise ConfigurationError(f"{where}: {', '.join(in_order(allow & deny))} is in allow and in deny")
    if "queue" in entry and "pattern" in entry:
        raise ConfigurationError(f"{where}: has a queue and a pattern; give it one of them, or none for all queues")
    queue, pattern = (expect(entry.get(name, ""), str, f"{where}.{name}") for name in ("queue", "pattern"))
    problem = queue_name_problem(queue) if "queue" in entry else None
    if problem:
        raise ConfigurationError(f"{where}.queue: {shown(queue)} {problem}")
    if "pattern" not in entry:
        return AccessRule(who, allow, deny, queue)
    if not pattern:
        raise ConfigurationError(f"{where}.pattern: is empty, which matches no name; leave it out to mean all queues")
    try:
        return AccessRule(who, allow, deny, pattern=pattern, expression=Pattern(pattern))
    except ValueError as error:
        raise ConfigurationError(f"{where}.pattern: {error}") from None


def _clients(tree: Any, where: str) -> Mapping[str, Subject]:
    clients: dict[str, Subject] = {}
    for client, user in expect(tree, dict, where).items():
        if not is_id(client):
            raise ConfigurationError(f"{where}: {shown(client)} is not a client id; expected {ID_RULE}")
        if not _is_name(expect(user, str, f"{where}.{client}")):
            raise ConfigurationError(f"{where}.{client}: expected name or number of a user, got {shown(user)}")
        clients[client] = Subject(SubjectKind.USER, user)
    return MappingProxyType(clients)


def _who(entries: Any, where: str) -> tuple[Subject, ...]:
    places = {f"{where}[{at}]": entry for at, entry in enumerate(expect(entries, list, where))}
    return tuple(_subject(expect(entry, str, place), place) for place, entry in places.items())


def _subject(text: str, where: str) -> Subject:
    kind, _, name = text.partition(" ")
    if kind == SubjectKind.EVERYONE and not name:
        return Subject(SubjectKind.EVERYONE)
    if kind == SubjectKind.PRINCIPAL and (is_principal(name) or (name[-2:] == ":*" and is_principal(name[:-1] + "x"))):
        return Subject(SubjectKind.PRINCIPAL, name)
    if kind not in (SubjectKind.USER, SubjectKind.GROUP) or not _is_name(name):
        expected = "user NAME, group NAME (or a number for NAME), principal SCHEME:NAME (or SCHEME:*), or everyone"
        raise ConfigurationError(f"{where}: expected {expected}, got {shown(text)}")
    return Subject(SubjectKind(kind), name)


def _is_name(name: str) -> bool:
    """Whether a text may be the name or number of a user or group."""
    return bool(_NAME.fullmatch(name)) and not (is_number(name) and int(name) > ID_CEILING)


def _verbs(entries: Any, where: str) -> frozenset[Verb]:
    if type(entries) is not list or not all(type(entry) is str and entry in list(Verb) for entry in entries):
        raise ConfigurationError(f"{where}: expected array of {', '.join(Verb)}, got {shown(entries)}")
    return frozenset(Verb(entry) for entry in entries)
