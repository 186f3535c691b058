"""``access`` and ``clients`` of the configuration: what is refused, what is warned of, and how both are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from postroom_common.errors import ConfigurationError
from postroom_daemon.cli import main
from postroom_daemon.config.access_file import RULES_LIMIT
from postroom_daemon.config.config import load
from postroom_daemon.policy.access_rules import AccessRules

ALICE = "54001"
RULE: dict[str, Any] = {"who": ["everyone"], "allow": ["publish"]}
RULES: dict[str, Any] = {
    "access": {
        "operators": ["group 54000"],
        "rules": [
            {"who": [f"user {ALICE}", "group 54002"], "pattern": "pay\\..*", "allow": ["publish"], "deny": ["browse"]},
            {"who": ["everyone"], "queue": "line a", "deny": ["consume"]},
            {"who": ["user 54003"], "allow": ["operate"]},
        ],
        "default": ["consume"],
    },
    "clients": {"press-7": ALICE},
}


def configured(root: Path, tree: Any) -> AccessRules:
    (root / "config.json").write_text(json.dumps(tree))
    return load(root, None, {}, {}).access


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [words[0], "--root", str(root), *words[1:]])


def rules(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"access": {"rules": list(entries), "default": [], **more}}


@pytest.mark.parametrize(
    ("tree", "reported"),
    [
        ({"access": []}, "access: expected object, got []"),
        ({"access": {"rule": []}}, "access.rule: unknown key; expected one of: default, operators, rules"),
        ({"access": {"rules": [RULE]}}, "access.default: is required with rules"),
        ({"access": {"operators": "group ops"}}, 'access.operators: expected array, got "group ops"'),
        ({"access": {"default": ["write"]}}, "access.default: expected array of publish, consume, browse, operate"),
        (rules("x"), 'access.rules[0]: expected object, got "x"'),
        (rules(*[RULE] * (RULES_LIMIT + 1)), "access.rules: at most 200 rules, not 201"),
        (rules(RULE | {"queues": "a"}), "access.rules[0].queues: unknown key"),
        (rules({"allow": ["publish"]}), "access.rules[0].who: expected array, got null"),
        (rules(RULE | {"who": []}), "access.rules[0].who: is empty: name a user or group, or everyone"),
        (rules(RULE, RULE | {"who": ["alice"]}), "access.rules[1].who[0]: expected user NAME, group NAME"),
        (rules(RULE | {"who": ["everyone else"]}), "expected user NAME, group NAME"),
        (rules(RULE | {"who": ["user "]}), "expected user NAME, group NAME"),
        (rules(RULE | {"who": ["user 4294967295"]}), "expected user NAME, group NAME"),
        (rules(RULE | {"who": ["group a:b"]}), "expected user NAME, group NAME"),
        (rules(RULE | {"who": [1000]}), "access.rules[0].who[0]: expected string, got 1000"),
        (rules({"who": ["everyone"]}), "access.rules[0]: has neither allow nor deny"),
        (rules(RULE | {"deny": ["consume", "publish"]}), "access.rules[0]: publish is in allow and in deny"),
        (rules(RULE | {"queue": "a", "pattern": "a"}), "access.rules[0]: has a queue and a pattern"),
        (rules(RULE | {"queue": ""}), 'access.rules[0].queue: "" must not be empty'),
        (rules(RULE | {"queue": "a\nb"}), "must not contain control characters"),
        (rules(RULE | {"pattern": ""}), "access.rules[0].pattern: is empty"),
        (rules(RULE | {"pattern": "(?=a)"}), "access.rules[0].pattern: '(?=a)' is not a regular expression"),
        ({"clients": {"a/b": "root"}}, 'clients: "a/b" is not a client id'),
        ({"clients": {"a": "user root"}}, None),
        ({"clients": {"a": 0}}, "clients.a: expected string, got 0"),
        ({"clients": {"a": "b:c"}}, 'clients.a: expected name or number of a user, got "b:c"'),
    ],
)
def test_an_invalid_rule_is_refused_with_its_place(tmp_path: Path, tree: Any, reported: str | None) -> None:
    if reported is None:  # a name of two words, which some directories of users have
        configured(tmp_path, tree)
        return
    with pytest.raises(ConfigurationError) as refused:
        configured(tmp_path, tree)
    assert reported in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'config.json'}: ")


def test_a_file_without_access_rules_behaves_like_no_file(tmp_path: Path) -> None:
    assert configured(tmp_path, {}) == configured(tmp_path, {"access": {}, "clients": {}}) == AccessRules()


def test_rules_are_shown_as_they_are_in_the_file(tmp_path: Path) -> None:
    assert configured(tmp_path, RULES).to_wire() == RULES
    reported = json.loads(run(tmp_path, "check-config", "--json").stdout)
    assert {"access": reported["access"], "clients": reported["clients"]} == RULES


def test_an_unknown_name_is_only_a_warning(tmp_path: Path) -> None:
    named = {"who": ["user no.such.user", "group no.such.group", "user root"], "allow": ["publish"]}
    (tmp_path / "config.json").write_text(json.dumps(rules(named, named) | {"clients": {"a": "no.such.user"}}))
    assert load(tmp_path, None, {}, {}).warnings == (
        "access.rules[0]: this device has no user no.such.user; the entry has no effect until it exists",
        "access.rules[0]: this device has no group no.such.group; the entry has no effect until it exists",
    )
    assert "warning: access.rules[0]: this device has no user no.such.user" in run(tmp_path, "check-config").stdout


def test_a_rule_without_effect_prevents_the_start_and_is_reported_everywhere(tmp_path: Path) -> None:
    for unknown in ("user no.such.user", "group no.such.group"):
        configured(tmp_path, rules({"who": ["everyone"], "deny": ["browse"]}, {"who": [unknown], "deny": ["publish"]}))
        reported = f"access.rules[1].who: this device has no {unknown}, so the rule would deny nobody anything"
        for command in ("run", "check-config"):
            done = run(tmp_path, command)
            assert done.exit_code == 2
            assert reported in done.stderr
        assert f"no daemon starts with this: {reported}" in run(tmp_path, "access", "--user", "root").stdout
        assert reported in run(tmp_path, "check-permissions").stdout
        assert load(tmp_path, None, {}, {}).warnings, "tools go on: it may be a root of another device"


def test_the_configuration_is_shown_with_its_rules_in_their_order(tmp_path: Path) -> None:
    configured(tmp_path, RULES)
    lines = run(tmp_path, "check-config").stdout.splitlines()
    begin = lines.index("access.operators  group 54000 (and root, and the daemon)")
    assert lines[begin + 1 : begin + 6] == [
        f"access.rules[0]  user {ALICE}, group 54002  pattern pay\\..*  allow publish; deny browse",
        "access.rules[1]  everyone  queue 'line a'  deny consume",
        "access.rules[2]  user 54003  all queues  allow operate",
        "access.default  consume",
        f"clients.press-7  user {ALICE}",
    ]


def test_the_permissions_of_a_user_in_a_queue_are_shown_with_their_rules(tmp_path: Path) -> None:
    configured(tmp_path, RULES)
    reported = json.loads(run(tmp_path, "access", "--user", ALICE, "--queue", "pay.in", "--json").stdout)
    assert reported["verbs"] == {
        "publish": {"allowed": True, "by": "rule", "rule": 0},
        "consume": {"allowed": True, "by": "default"},
        "browse": {"allowed": False, "by": "rule", "rule": 0},
        "operate": {"allowed": False, "by": "default"},
    }
    assert (reported["uid"], reported["user"], reported["groups"], reported["clients"]) == (
        int(ALICE),
        "",
        [],
        ["press-7"],
    )
    assert run(tmp_path, "access", "--user", ALICE, "--queue", "line a").stdout.splitlines() == [
        f"user without a name, uid {ALICE}, groups: unknown",
        "publish   no   access.default",
        "consume   no   access.rules[1]",
        "browse    no   access.default",
        "operate   no   access.default",
        "client ids registered for this user: press-7",
    ]
    assert (
        "publish   yes  an operator may do everything"
        in run(tmp_path, "access", "--user", "root", "--queue", "q").stdout
    )


def test_the_rules_about_a_user_are_shown_without_a_queue(tmp_path: Path) -> None:
    configured(tmp_path, RULES)
    reported = json.loads(run(tmp_path, "access", "--user", ALICE, "--json").stdout)
    assert [one["rule"] for one in reported["rules"]] == [0, 1]
    lines = run(tmp_path, "access", "--user", ALICE).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:4]] == ["access.rules[0]", "access.rules[1]", "else"]
    assert lines[3] == "else  consume (access.default)"
    assert run(tmp_path, "access", "--user", "root").stdout.splitlines()[1] == "an operator, who may do everything"


def test_what_a_principal_of_a_gateway_may_do_is_shown(tmp_path: Path) -> None:
    about = [
        {"who": ["principal token:*"], "queue": "in", "allow": ["publish"]},
        {"who": [f"user {ALICE}", "group 0"], "allow": ["operate"]},
        {"who": ["principal token:scanner-7"], "deny": ["browse"]},
    ]
    configured(tmp_path, rules(*about, default=["browse"], operators=["principal cert:maria"]))
    lines = run(tmp_path, "access", "--principal", "token:scanner-7", "--queue", "in").stdout.splitlines()
    assert lines == [
        "principal token:scanner-7",
        "publish   yes  access.rules[0]",
        "consume   no   access.default",
        "browse    no   access.rules[2]",
        "operate   no   access.default",
    ]
    reported = json.loads(run(tmp_path, "access", "--principal", "tokens:x", "--json").stdout)
    assert (reported["principal"], reported["rules"], reported["operator"]) == ("tokens:x", [], False)
    assert "operator" in run(tmp_path, "access", "--principal", "cert:maria").stdout
    for words in (["--principal", "uid:0"], [], ["--principal", "token:x", "--user", "root"]):
        assert run(tmp_path, "access", *words).exit_code == 2


@pytest.mark.parametrize(
    "who", ["principal scanner", "principal uid:0", "principal uid:*", "principal *", "principal *:x"]
)
def test_a_rule_names_a_principal_by_scheme_and_name(tmp_path: Path, who: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected .*principal SCHEME:NAME"):
        configured(tmp_path, rules({"who": [who], "allow": ["publish"]}))


@pytest.mark.parametrize("users", ["a,,b", ",", "a:b", "token/x", "4294967295"])
def test_a_setting_that_names_no_users_is_refused(tmp_path: Path, users: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gateway\.users: expected names or numbers of users"):
        configured(tmp_path, {"gateway": {"users": users}})


@pytest.mark.parametrize(
    ("quotas", "reported"),
    [
        ({}, "quotas: expected array, got {}"),
        ([{"leases": 1}], "quotas[0].who: expected array, got null"),
        ([{"who": [], "leases": 1}], "quotas[0].who: name users or principals, or everyone"),
        ([{"who": ["group 0"], "leases": 1}], "quotas[0].who: name users or principals, or everyone"),
        ([{"who": ["everyone"]}], "quotas[0]: has no quota; expected one of: pendingRequests, "),
        ([{"who": ["everyone"], "userLeases": 1}], "quotas[0].userLeases: unknown key"),
        ([{"who": ["everyone"], "leases": True}], "quotas[0].leases: expected integer, got true"),
        ([{"who": ["everyone"], "waits": -1}], "quotas[0].waits: expected 0 (no limit) to 1,099,511,627,776, got -1"),
    ],
)
def test_a_quota_of_somebody_that_cannot_be_used_is_refused(tmp_path: Path, quotas: Any, reported: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(reported)):
        configured(tmp_path, {"quotas": quotas})


def test_quotas_are_shown_as_they_were_written(tmp_path: Path) -> None:
    quotas = [{"who": ["principal token:*", "user 7"], "leases": 0, "storedBytes": 5}]
    configured(tmp_path, {"quotas": quotas})
    assert json.loads(run(tmp_path, "check-config", "--json").stdout)["quotas"] == quotas
    assert f"quotas  {json.dumps(quotas[0])}" in run(tmp_path, "check-config").stdout.splitlines()


def test_only_an_existing_user_can_be_named(tmp_path: Path) -> None:
    done = run(tmp_path, "access", "--user", "no.such.user")
    assert (done.exit_code, done.stderr) == (
        1,
        "postroomd: this device has no user no.such.user; a number is accepted as it is\n",
    )
    assert run(tmp_path, "access", "--user", "root", "--queue", "").exit_code == 2
