"""Access control: who may do what. Identity is the verified account, never anything that a request says."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from postroom_common.errors import CommandError
from postroom_common.protocol import TOOL_COMMANDS, Command, ErrorCode

from ..model.principal import Account, Principal, name_of
from ..platform.accounts import Accounts
from .access_rules import AccessRule, AccessRules, Subject, SubjectKind, Verb

#: Interval (engine ms) at which the names and groups of users are looked up again.
REFRESH_MS: Final = 60_000
#: Maximum number of cached permissions of an account in a queue: there may be any number of queues.
CACHE_LIMIT = 4096
_DOING: Final = {
    Verb.PUBLISH: "publish to",
    Verb.CONSUME: "consume from",
    Verb.BROWSE: "browse",
    Verb.OPERATE: "operate",
}
#: Commands that not everyone may give.
_FOR_OPERATORS: Final = {
    Command.DRAIN: "drain the daemon",
    Command.SET_POLICY_PATTERNS: "set the policy patterns of the daemon",
}
_RESTRICTED: Final = frozenset((*TOOL_COMMANDS, *_FOR_OPERATORS))
_WAY_OUT: Final = "ask the device's owner for a rule (access.rules) that allows it"


class Ruling(NamedTuple):
    """Whether something is allowed, and what decides that: ``operator``, ``rule`` (with its index in the
    configuration), or ``default``."""

    allowed: bool
    by: str
    rule: int = -1


class _SubjectIds(NamedTuple):
    """The ids of a list of subjects; ``principals`` are names, and ``scheme:*``."""

    uids: frozenset[int]
    gids: frozenset[int]
    principals: frozenset[str]
    everyone: bool


def may_use_response_dir(uid: int, owner_uid: int) -> bool:
    """Whether a uid may act as the client whose response directory belongs to ``owner_uid``: its owner owns the client
    id."""
    return uid == owner_uid


class Access:
    """Applies the rules in force. Rules are immutable; ``use`` replaces them, between two groups.

    Root and the daemon's own user may do everything: the one could become anybody, the other owns all data.
    """

    def __init__(self, rules: AccessRules, daemon_uid: int, accounts: Accounts | None = None) -> None:
        self.refusals = 0
        """Number of refusals since the start."""
        self.changes = 0
        """How often the rules, or the users and groups that they name, may have changed."""
        self._masters = frozenset({0, daemon_uid})
        self._refreshed = 0
        self.use(rules, accounts or Accounts())

    def use(self, rules: AccessRules, accounts: Accounts | None = None) -> None:
        """Apply other rules; ``accounts`` resolves the users and groups that they name. Never call this while a group
        is processed."""
        self.rules = rules
        self._accounts = accounts or Accounts()
        self.free = frozenset() if rules.rules else rules.default
        """What everyone may do in every queue."""
        self.checked = frozenset(Command) if rules.clients else _RESTRICTED
        """The commands that ``check_command`` may refuse."""
        self._clear_caches()

    def refresh(self, now: int) -> None:
        """Take over changes of users and their system groups. Called once for each group of requests; ``now`` in engine
        ms."""
        if now - self._refreshed >= REFRESH_MS:
            self._refreshed = now
            self._accounts.refresh()
        if self._accounts.apply_refresh():
            self._clear_caches()

    def is_ready_for(self, uid: int) -> bool:
        """Whether a user's permissions can be decided without a lookup. If not, this starts one: ask again later."""
        return not self._by_groups or uid in self._masters or self._accounts.has_groups(uid)

    def is_gateway(self, uid: int) -> bool:
        """Whether a user's processes may name the principals for which they send requests."""
        return uid in self._gateway_uids

    def is_open(self, verb: Verb | None) -> bool:
        """Whether everyone has a permission (None: any permission) in every queue."""
        return verb in self.free if verb else bool(self.free)

    def may(self, account: Account, verb: Verb | None, queue: str) -> bool:
        """Whether an account has a permission (None: any permission, which allows it to see the queue's state) in a
        queue, which need not exist."""
        if verb in self.free:
            return True
        verbs = self._verbs(account, queue)
        return verb in verbs if verb else bool(verbs)

    def require(self, account: Account, verb: Verb | None, queue: str) -> None:
        """Raise ``CommandError`` (ERR_FORBIDDEN) unless an account has a permission, see ``may``."""
        if not self.may(account, verb, queue):
            raise self.refusal(account, verb, queue)

    def refusal(self, account: Account, verb: Verb | None, queue: str) -> CommandError:
        """The error for a missing permission. Counts it as a refusal."""
        doing = _DOING[verb] if verb else "do anything with"
        return self._refused(f"{name_of(account)} may not {doing} queue {queue!r}: {_WAY_OUT}")

    def check_command(self, who: Principal, command: Command) -> None:
        """Raise ``CommandError`` (ERR_FORBIDDEN) if the principal may not use its client id, or may not give a command
        that concerns the whole daemon. Only those that are ``checked`` can be refused."""
        clients = self.rules.clients
        user = clients.get(who.client_id) if clients else None
        if user and who.account not in self._masters and who.account != user.number(self._accounts):
            name = name_of(who.account)
            raise self._refused(
                f"client id {who.client_id} is registered for another user, not for {name}: use another client id"
            )
        if command not in _RESTRICTED:
            return
        if command in TOOL_COMMANDS and who.account not in self._masters:
            raise self._refused(f"{command} is for the user that the daemon runs as, and root")
        if command in _FOR_OPERATORS and not self.is_operator(who.account):
            doing = _FOR_OPERATORS[command]
            text = f"{name_of(who.account)} may not {doing}, which is for its operators (access.operators)"
            raise self._refused(text)

    def is_operator(self, account: Account) -> bool:
        """Whether an account may do everything in every queue. ``everyone`` means every local user here: a principal
        from elsewhere must be named."""
        if account in self._masters:
            return True
        cached = self._operators.get(account)
        if cached is None:
            if len(self._operators) >= CACHE_LIMIT:
                self._operators.clear()
            who = self.rules.operators
            if type(account) is str:
                who = tuple(one for one in who if one.kind is SubjectKind.PRINCIPAL)
            cached = self._operators[account] = self.is_among(account, who)
        return cached

    def rulings(self, account: Account, queue: str) -> dict[Verb, Ruling]:
        """The ruling for each verb. The first rule that names the account, the queue and the verb decides."""
        if self.is_operator(account):
            return dict.fromkeys(Verb, Ruling(True, "operator"))
        decided: dict[Verb, Ruling] = {}
        for place, rule in self.about(account):
            open_verbs = rule.decides.difference(decided)
            if open_verbs and rule.is_about(queue):
                decided |= {verb: Ruling(verb in rule.allow, "rule", place) for verb in open_verbs}
        return {verb: decided.get(verb) or Ruling(verb in self.rules.default, "default") for verb in Verb}

    def about(self, account: Account) -> list[tuple[int, AccessRule]]:
        """The rules that concern an account, in order, with their indexes in the configuration."""
        cached = self._about.get(account)
        if cached is None:
            if len(self._about) >= CACHE_LIMIT:
                self._about.clear()
            rules = ((index, self._for(account, rule)) for index, rule in enumerate(self.rules.rules))
            cached = self._about[account] = [(index, rule) for index, rule in rules if rule]
        return cached

    def _for(self, account: Account, rule: AccessRule) -> AccessRule | None:
        """The rule as it applies to an account, or None. The groups of a user without an entry are unknown: what is
        denied to a group is denied to this user as well."""
        if self.is_among(account, rule.who):
            return rule
        if rule.deny and any(one.kind is SubjectKind.GROUP for one in rule.who) and self._groups_of(account) is None:
            return replace(rule, allow=frozenset())
        return None

    def _refused(self, text: str) -> CommandError:
        self.refusals += 1
        return CommandError(ErrorCode.FORBIDDEN, text)

    def _verbs(self, account: Account, queue: str) -> frozenset[Verb]:
        cached = self._permissions.get((account, queue))
        if cached is None:
            if len(self._permissions) >= CACHE_LIMIT:
                self._permissions.clear()
            allowed = frozenset(verb for verb, ruling in self.rulings(account, queue).items() if ruling.allowed)
            cached = self._permissions[account, queue] = allowed
        return cached

    def _clear_caches(self) -> None:
        self.changes += 1
        self._subject_ids: dict[tuple[Subject, ...], _SubjectIds] = {}
        self._operators: dict[Account, bool] = {}
        self._about: dict[Account, list[tuple[int, AccessRule]]] = {}
        self._permissions: dict[tuple[Account, str], frozenset[Verb]] = {}
        self._gateway_uids = self._ids_of(self.rules.gateways).uids
        named = [one for who in (self.rules.operators, *(rule.who for rule in self.rules.rules)) for one in who]
        groups = [one for one in named if one.kind is SubjectKind.GROUP]
        self._by_groups = any(one.number(self._accounts) is not None for one in groups)

    def is_among(self, account: Account, who: tuple[Subject, ...]) -> bool:
        """Whether some of these subjects are an account."""
        ids = self._subject_ids.get(who)
        if ids is None:
            ids = self._subject_ids[who] = self._ids_of(who)
        if ids.everyone or account in ids.uids:
            return True
        if type(account) is str:
            return account in ids.principals or account.partition(":")[0] + ":*" in ids.principals
        return bool(ids.gids) and not ids.gids.isdisjoint(self._groups_of(account) or ())

    def _groups_of(self, account: Account) -> frozenset[int] | None:
        return self._accounts.groups_of(account) if type(account) is int else frozenset()

    def _ids_of(self, who: tuple[Subject, ...]) -> _SubjectIds:
        ids: dict[SubjectKind, set[int]] = {SubjectKind.USER: set(), SubjectKind.GROUP: set()}
        for one in who:
            number = one.number(self._accounts) if one.is_of_device else None
            if number is not None:
                ids[one.kind].add(number)
        return _SubjectIds(
            frozenset(ids[SubjectKind.USER]),
            frozenset(ids[SubjectKind.GROUP]),
            frozenset(one.name for one in who if one.kind is SubjectKind.PRINCIPAL),
            any(one.kind is SubjectKind.EVERYONE for one in who),
        )
