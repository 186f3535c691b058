"""``postroomd access``: what a user may do by the configuration, and what says so."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from postroom_common.errors import PostroomError
from postroom_common.protocol import queue_name_problem

from ..config.config import Config
from ..platform.accounts import Accounts, group_name, user_name
from ..policy.access import Access, Ruling
from ..policy.access_rules import ID_CEILING, AccessRules, Rule, in_order, is_number
from .options import Source, configured, json_option


@click.command()
@json_option
@click.option(
    "--queue", metavar="NAME", help="Show of each verb whether it is allowed in a queue of this name, and why."
)
@click.option("--user", metavar="USER", required=True, help="Name or number of the user.")
@configured
def access(source: Source, as_json: bool, user: str, queue: str | None) -> None:
    """Show what a user may do.

    That is, by the configuration: the rules that are about the user, in the order in which they are looked at. With
    --queue: of each verb, whether the user may, and by which rule. A daemon that runs may have been started, or
    reloaded, with another configuration. Tells of rules that keep nobody out, with which no daemon starts. Changes
    nothing.
    """
    problem = queue_name_problem(queue) if queue is not None else None
    if problem:
        raise click.UsageError(f"--queue: {problem}")
    config = source.load_root("show")
    uid = _uid(user)
    known = _described(config, uid, queue)
    click.echo(json.dumps({"ok": True, **known}) if as_json else "\n".join(_lines(known)))


def rule_line(rule: Rule) -> str:
    """A rule in a line, for people."""
    queues = f"queue {rule.queue!r}" if rule.queue else f"pattern {rule.pattern}" if rule.pattern else "all queues"
    verbs = [f"{word} {' '.join(in_order(of))}" for word, of in (("allow", rule.allow), ("deny", rule.deny)) if of]
    return f"{', '.join(one.text for one in rule.who)}  {queues}  {'; '.join(verbs)}"


def rules_lines(rules: AccessRules) -> list[str]:
    """All that the configuration says of access, for people."""
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
        raise PostroomError(f"this device has no user {user}; a number is taken as it is")
    return uid


def _described(config: Config, uid: int, queue: str | None) -> dict[str, Any]:
    rules, accounts = config.access, config.accounts
    made = Access(rules, _daemon_uid(config), accounts)
    told: dict[str, Any] = {
        "uid": uid,
        "user": user_name(uid),
        "groups": [group_name(gid) or str(gid) for gid in sorted(accounts.groups_of(uid) or ())],
        "operator": made.is_operator(uid),
        "rules": [{"rule": place, **rule.to_wire()} for place, rule in made.about(uid)],
        "default": in_order(rules.default),
        "clients": [client for client, one in rules.clients.items() if one.number(accounts) == uid],
        "problems": rules.open_denials(accounts),
    }
    if queue is not None:
        rulings = made.rulings(uid, queue)
        told |= {"queue": queue, "verbs": {verb.value: _ruling(ruling) for verb, ruling in rulings.items()}}
    return told


def _daemon_uid(config: Config) -> int:
    """The user of the daemon: the one that owns the root, where there is one."""
    try:
        return config.root.stat().st_uid
    except FileNotFoundError:
        return os.geteuid()


def _ruling(ruling: Ruling) -> dict[str, Any]:
    told: dict[str, Any] = {"allowed": ruling.allowed, "by": ruling.by}
    return told | ({"rule": ruling.rule} if ruling.by == "rule" else {})


def _lines(told: dict[str, Any]) -> list[str]:
    groups = ", ".join(told["groups"]) or "none that are known"
    lines = [f"user {told['user'] or 'without a name'}, uid {told['uid']}, groups: {groups}"]
    if "queue" in told:
        for verb, ruling in told["verbs"].items():
            by = {"rule": f"access.rules[{ruling.get('rule')}]", "default": "access.default"}.get(
                ruling["by"], "an operator may do everything"
            )
            lines.append(f"{verb:8}  {'yes' if ruling['allowed'] else 'no':3}  {by}")
    elif told["operator"]:
        lines.append("an operator: may do everything")
    else:
        lines += [f"access.rules[{one.pop('rule')}]  {json.dumps(one, ensure_ascii=False)}" for one in told["rules"]]
        lines.append(f"else  {_verbs_text(told['default'])} (access.default)")
    if told["clients"]:
        lines.append(f"client ids that are registered for this user: {', '.join(told['clients'])}")
    return lines + [f"no daemon starts with this: {problem}" for problem in told["problems"]]


def _verbs_text(verbs: list[str]) -> str:
    return " ".join(verbs) or "nothing"
