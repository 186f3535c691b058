"""Who may do what. Identity is the uid that owns the request file, nothing that the file says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from postroom_common.errors import CommandError
from postroom_common.protocol import TOOL_COMMANDS, Command, ErrorCode

from ..model.principal import Account, Principal, name_of
from ..platform.accounts import Accounts
from .access_rules import AccessRule, AccessRules, Subject, SubjectKind, Verb

#: Names and groups of users are looked up again after so many engine milliseconds.
LOOKED_UP_MS: Final = 60_000
#: Users with a queue each whose rights are remembered: there may be any number of queues.
REMEMBERED: Final = 4096
_DOING: Final = {
    Verb.PUBLISH: "publish to",
    Verb.CONSUME: "consume from",
    Verb.BROWSE: "browse",
    Verb.OPERATE: "operate",
}
_WAY_OUT: Final = "ask the device's owner for a rule (access.rules) that allows it"


class Ruling(NamedTuple):
    """Whether something is allowed, and what says so: ``operator``, ``rule`` with its place in the configuration, or
    ``default``."""

    allowed: bool
    by: str
    rule: int = -1


class _Meant(NamedTuple):
    """Those that a list of users and groups means, by their numbers."""

    uids: frozenset[int]
    gids: frozenset[int]
    everyone: bool


def may_use_box(uid: int, box_uid: int) -> bool:
    """Whether a uid may act as the client whose box ``box_uid`` owns: a client id belongs to the owner of its box."""
    return uid == box_uid


class Access:
    """What the rules in force allow. The rules never change, they are exchanged: by ``use``, between two groups.

    Root and the daemon's own user may do everything: the one could become anybody, the other owns what is kept.
    """

    def __init__(self, rules: AccessRules, daemon_uid: int, accounts: Accounts | None = None) -> None:
        self.refusals = 0
        """How often somebody was refused something since the start."""
        self._masters = frozenset({0, daemon_uid})
        self._looked_up = 0
        self.use(rules, accounts or Accounts())

    def use(self, rules: AccessRules, accounts: Accounts | None = None) -> None:
        """Let other rules count from now on; ``accounts`` knows the users and groups that they name. Not while a group
        is decided."""
        self.rules = rules
        self._accounts = accounts or Accounts()
        self._free = frozenset() if rules.rules else rules.default  # for everyone, in all queues
        self._forget()

    def refresh(self, now: int) -> None:
        """Once a group: who is in which group may have changed, ``now`` (engine ms)."""
        if now - self._looked_up >= LOOKED_UP_MS:
            self._looked_up = now
            self._accounts.refresh()
        if self._accounts.apply_refresh():
            self._forget()

    def knows(self, uid: int) -> bool:
        """Whether it can be told at once what a user may; else that is looked up from now on: ask again."""
        return not self._by_groups or uid in self._masters or self._accounts.has_groups(uid)

    def is_open(self, verb: Verb | None) -> bool:
        """Whether everyone may do something, or for None anything at all, with every queue."""
        return verb in self._free if verb else bool(self._free)

    def may(self, account: Account, verb: Verb | None, queue: str) -> bool:
        """Whether a user may do something with a queue, which need not exist; for None, anything at all: then he may
        know how it is."""
        if verb in self._free:
            return True
        verbs = self._verbs(account, queue)
        return verb in verbs if verb else bool(verbs)

    def require(self, account: Account, verb: Verb | None, queue: str) -> None:
        """Raise ``CommandError`` (ERR_FORBIDDEN) unless a user ``may`` do something."""
        if not self.may(account, verb, queue):
            raise self.refusal(account, verb, queue)

    def refusal(self, account: Account, verb: Verb | None, queue: str) -> CommandError:
        """The error for who may not do something, which is counted."""
        doing = _DOING[verb] if verb else "do anything with"
        return self._refused(f"{name_of(account)} may not {doing} queue {queue!r}: {_WAY_OUT}")

    def check_command(self, who: Principal, command: Command) -> None:
        """Raise ``CommandError`` (ERR_FORBIDDEN) for who may not act under his client id, or not give a command that is
        about the daemon as a whole."""
        user = self.rules.clients.get(who.client_id)
        if user and who.account not in self._masters and who.account != user.number(self._accounts):
            name = name_of(who.account)
            raise self._refused(
                f"client id {who.client_id} is registered for another user than {name}: use one of your own"
            )
        if command in TOOL_COMMANDS and who.account not in self._masters:
            raise self._refused(f"{command} is for the user that the daemon runs as, and root")
        if command is Command.DRAIN and not self.is_operator(who.account):
            text = f"{name_of(who.account)} may not {command} the daemon, which is for its operators (access.operators)"
            raise self._refused(text)

    def is_operator(self, account: Account) -> bool:
        """Whether a user may do everything with every queue."""
        if account in self._masters:
            return True
        known = self._operators.get(account)
        if known is None:
            if len(self._operators) >= REMEMBERED:
                self._operators.clear()
            known = self._operators[account] = self._is_among(account, self.rules.operators)
        return known

    def rulings(self, account: Account, queue: str) -> dict[Verb, Ruling]:
        """Of each verb whether it is allowed, and why. The first rule counts that is about the user, the queue and the
        verb."""
        if self.is_operator(account):
            return dict.fromkeys(Verb, Ruling(True, "operator"))
        found: dict[Verb, Ruling] = {}
        for place, rule in self.about(account):
            open_verbs = rule.decides - found.keys()
            if open_verbs and rule.is_about(queue):
                found |= {verb: Ruling(verb in rule.allow, "rule", place) for verb in open_verbs}
        return {verb: found.get(verb) or Ruling(verb in self.rules.default, "default") for verb in Verb}

    def about(self, account: Account) -> list[tuple[int, AccessRule]]:
        """The rules that are about a user, in their order, with their places in the configuration."""
        known = self._about.get(account)
        if known is None:
            if len(self._about) >= REMEMBERED:
                self._about.clear()
            found = ((place, self._for(account, rule)) for place, rule in enumerate(self.rules.rules))
            known = self._about[account] = [(place, rule) for place, rule in found if rule]
        return known

    def _for(self, account: Account, rule: AccessRule) -> AccessRule | None:
        """What a rule says of a user, if anything. Of one without an entry it is not known in which groups he is: what
        is denied to a group is denied to him."""
        if self._is_among(account, rule.who):
            return rule
        if rule.deny and any(one.kind is SubjectKind.GROUP for one in rule.who) and self._groups_of(account) is None:
            return replace(rule, allow=frozenset())
        return None

    def _refused(self, text: str) -> CommandError:
        self.refusals += 1
        return CommandError(ErrorCode.FORBIDDEN, text)

    def _verbs(self, account: Account, queue: str) -> frozenset[Verb]:
        known = self._remembered.get((account, queue))
        if known is None:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            allowed = frozenset(verb for verb, ruling in self.rulings(account, queue).items() if ruling.allowed)
            known = self._remembered[account, queue] = allowed
        return known

    def _forget(self) -> None:
        self._meant: dict[tuple[Subject, ...], _Meant] = {}
        self._operators: dict[Account, bool] = {}
        self._about: dict[Account, list[tuple[int, AccessRule]]] = {}
        self._remembered: dict[tuple[Account, str], frozenset[Verb]] = {}
        named = [one for who in (self.rules.operators, *(rule.who for rule in self.rules.rules)) for one in who]
        groups = [one for one in named if one.kind is SubjectKind.GROUP]
        self._by_groups = any(one.number(self._accounts) is not None for one in groups)

    def _is_among(self, account: Account, who: tuple[Subject, ...]) -> bool:
        meant = self._meant.get(who)
        if meant is None:
            meant = self._meant[who] = self._numbers(who)
        if meant.everyone or account in meant.uids:
            return True
        return bool(meant.gids) and not meant.gids.isdisjoint(self._groups_of(account) or ())

    def _groups_of(self, account: Account) -> frozenset[int] | None:
        return self._accounts.groups_of(account) if type(account) is int else frozenset()

    def _numbers(self, who: tuple[Subject, ...]) -> _Meant:
        ids: dict[SubjectKind, set[int]] = {kind: set() for kind in SubjectKind}
        for one in who:
            number = 0 if one.kind is SubjectKind.EVERYONE else one.number(self._accounts)
            if number is not None:
                ids[one.kind].add(number)
        return _Meant(
            frozenset(ids[SubjectKind.USER]), frozenset(ids[SubjectKind.GROUP]), bool(ids[SubjectKind.EVERYONE])
        )
