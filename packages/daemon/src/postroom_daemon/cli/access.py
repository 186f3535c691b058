"""``postroomd access``: what the configuration allows a user, and by which rules."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from postroom_common.errors import PostroomError
from postroom_common.protocol import PRINCIPAL_RULE, is_principal, queue_name_problem

from ..config.config import Config
from ..model.principal import Account
from ..platform.accounts import Accounts, group_name, user_name
from ..policy.access import Access, Ruling
from ..policy.access_rules import ID_CEILING, AccessRule, AccessRules, in_order, is_number
from .options import Source, configured, json_option


@click.command()
@json_option
@click.option(
    "--queue", metavar="NAME", help="Show for each verb whether it is allowed in this queue, and which rule decides."
)
@click.option("--user", metavar="USER", help="Name or number of the user.")
@click.option("--principal", metavar="NAME", help="Instead of a user: a principal of a gateway, such as token:press-7.")
@configured
def access(source: Source, as_json: bool, user: str | None, principal: str | None, queue: str | None) -> None:
    """Show what a user, or a principal of a gateway, may do according to the configuration.

    Lists the rules that concern them, in the order in which they are checked. With --queue: for each verb, whether they
    may, and which rule decides. A running daemon may have been started, or reloaded, with another configuration. Also
    reports rules that restrict nobody, with which no daemon starts. Changes nothing.
    """
    if (user is None) == (principal is None):
        raise click.UsageError("give either --user or --principal")
    if principal is not None and not is_principal(principal):
        raise click.UsageError(f"--principal: expected {PRINCIPAL_RULE}")
    problem = queue_name_problem(queue) if queue is not None else None
    if problem:
        raise click.UsageError(f"--queue: {problem}")
    config = source.load_root("show")
    shown = _described(config, _uid(user) if user is not None else str(principal), queue)
    click.echo(json.dumps({"ok": True, **shown}) if as_json else "\n".join(_lines(shown)))


def rule_line(rule: AccessRule) -> str:
    """A rule as one line of text."""
    queues = f"queue {rule.queue!r}" if rule.queue else f"pattern {rule.pattern}" if rule.pattern else "all queues"
    verbs = [f"{word} {' '.join(in_order(of))}" for word, of in (("allow", rule.allow), ("deny", rule.deny)) if of]
    return f"{', '.join(one.text for one in rule.who)}  {queues}  {'; '.join(verbs)}"


def rules_lines(rules: AccessRules) -> list[str]:
    """Everything that the configuration says about access, as lines of text."""
    lines = [f"access.operators  {', '.join(one.text for one in rules.operators) or 'none'} (and root, and the daemon)"]
    lines += [f"access.rules[{place}]  {rule_line(rule)}" for place, rule in enumerate(rules.rules)]
    lines.append(f"access.default  {_verbs_text(in_order(rules.default))}")
    return [*lines, *(f"clients.{client}  {one.text}" for client, one in rules.clients.items())]


def _uid(user: str) -> int:
    if is_number(user):
        uid: int | None = int(user)
    else:
        uid = Accounts().user_id(user)
    if uid is None or uid > ID_CEILING:
        raise PostroomError(f"this device has no user {user}; a number is accepted as it is")
    return uid


def _described(config: Config, account: Account, queue: str | None) -> dict[str, Any]:
    rules, accounts = config.access, config.accounts
    made = Access(rules, _daemon_uid(config), accounts)
    shown: dict[str, Any] = {
        **(_user(accounts, account) if type(account) is int else {"principal": account}),
        "operator": made.is_operator(account),
        "rules": [{"rule": place, **rule.to_wire()} for place, rule in made.about(account)],
        "default": in_order(rules.default),
        "clients": [client for client, one in rules.clients.items() if one.number(accounts) == account],
        "problems": rules.open_denials(accounts),
    }
    if queue is not None:
        rulings = made.rulings(account, queue)
        shown |= {"queue": queue, "verbs": {verb.value: _ruling(ruling) for verb, ruling in rulings.items()}}
    return shown


def _user(accounts: Accounts, uid: int) -> dict[str, Any]:
    groups = [group_name(gid) or str(gid) for gid in sorted(accounts.groups_of(uid) or ())]
    return {"uid": uid, "user": user_name(uid), "groups": groups}


def _daemon_uid(config: Config) -> int:
    """The uid of the daemon's user, who owns the root; this process's if there is no root yet."""
    try:
        return config.root.stat().st_uid
    except FileNotFoundError:
        return os.geteuid()


def _ruling(ruling: Ruling) -> dict[str, Any]:
    shown: dict[str, Any] = {"allowed": ruling.allowed, "by": ruling.by}
    return shown | ({"rule": ruling.rule} if ruling.by == "rule" else {})


def _lines(shown: dict[str, Any]) -> list[str]:
    if "principal" in shown:
        lines = [f"principal {shown['principal']}"]
    else:
        groups = ", ".join(shown["groups"]) or "unknown"
        lines = [f"user {shown['user'] or 'without a name'}, uid {shown['uid']}, groups: {groups}"]
    if "queue" in shown:
        for verb, ruling in shown["verbs"].items():
            by = {"rule": f"access.rules[{ruling.get('rule')}]", "default": "access.default"}.get(
                ruling["by"], "an operator may do everything"
            )
            lines.append(f"{verb:8}  {'yes' if ruling['allowed'] else 'no':3}  {by}")
    elif shown["operator"]:
        lines.append("an operator, who may do everything")
    else:
        lines += [f"access.rules[{one.pop('rule')}]  {json.dumps(one, ensure_ascii=False)}" for one in shown["rules"]]
        lines.append(f"else  {_verbs_text(shown['default'])} (access.default)")
    if shown["clients"]:
        lines.append(f"client ids registered for this user: {', '.join(shown['clients'])}")
    return lines + [f"no daemon starts with this: {problem}" for problem in shown["problems"]]


def _verbs_text(verbs: list[str]) -> str:
    return " ".join(verbs) or "nothing"
