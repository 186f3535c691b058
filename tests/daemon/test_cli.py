"""``postroomd`` on the command line: what is printed, what is made, and the exit codes."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from postroom_common.logs.records import LineFormatter
from postroom_common.protocol import FIELDS, PROTOCOL_VERSION, TOOL_COMMANDS, Command
from postroom_daemon.cli import local as cli_local
from postroom_daemon.cli import main
from postroom_daemon.cli.postroomd import refusal
from postroom_daemon.config.config import load
from postroom_daemon.config.settings import SETTINGS
from postroom_daemon.maintenance.system import setup

#: Options of `local publish` that are no fields of the protocol.
_OWN_OPTIONS = ("--json-body", "--binary", "--root", "--json")


def postroomd(*arguments: str, environ: dict[str, str] | None = None) -> Result:
    clean = {name: None for name in os.environ if name.startswith("POSTROOM_")}
    return CliRunner(env={**clean, **(environ or {})}).invoke(main, arguments)


def process(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "postroom_daemon", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, **options)


def test_help_and_version_do_not_load_the_engine():
    code = (
        "import sys\nfrom postroom_daemon.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print(sorted(name for name in sys.modules if name.startswith('postroom_daemon')))"
    )
    for argument in ("version", "--help"):
        done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        loaded = done.stdout.splitlines()[-1]
        assert "postroom_daemon.cli.postroomd" in loaded
        for heavy in ("service", "engine", "journal", "stores", "mailbox"):
            assert f"postroom_daemon.{heavy}" not in loaded


def test_version_names_program_and_protocol():
    done = postroomd("version")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("postroomd ")
    assert lines[-1] == f"protocol {PROTOCOL_VERSION}"


def test_the_option_version_says_the_same_as_the_command():
    assert postroomd("--version").stdout == postroomd("version").stdout
    assert postroomd("--version").exit_code == 0


def test_version_as_json_is_one_object():
    done = postroomd("version", "--json")
    shown = json.loads(done.stdout)
    assert (done.exit_code, shown["ok"], shown["protocol"]) == (0, True, PROTOCOL_VERSION)
    assert f"postroomd {shown['postroomd']}\n" in postroomd("version").stdout


def test_the_module_is_the_command():
    done = process("version")
    assert done.returncode == 0
    assert done.stdout.startswith("postroomd ")


def test_init_makes_a_private_root_whose_configuration_is_the_default(tmp_path):
    root = tmp_path / "a" / "root"
    done = postroomd("init", "--root", str(root))
    assert done.exit_code == 0, done.output
    for name in ("", "ipc", "ipc/requests", "ipc/responses", "ipc/dead", "data", "journal", "traffic"):
        assert stat.S_IMODE((root / name).stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "config.json").stat().st_mode) == 0o600
    made = load(root, None, {}, {})
    assert made.warnings == ()
    (tmp_path / "empty.json").write_text("{}")
    assert made.settings == load(root, tmp_path / "empty.json", {}, {}).settings


def test_init_never_overwrites_a_configuration(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    done = postroomd("init", "--root", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr == f"postroomd: {tmp_path}/config.json exists already, and was not changed\n"
    assert (tmp_path / "config.json").read_text() == "{}"
    assert os.listdir(tmp_path) == ["config.json"]


def test_a_root_that_cannot_be_made_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for command in ("init", "run"):
        done = postroomd(command, "--root", str(tmp_path / "file" / "root"))
        assert done.exit_code == 1
        assert done.stderr.startswith(f"postroomd: {tmp_path}/file/root")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("run",), ("check-config",), ("local", "health")])
def test_a_root_that_is_a_file_is_reported_in_one_line(tmp_path, command):
    (tmp_path / "file").write_text("")
    done = postroomd(command[0], "--root", str(tmp_path / "file"), *command[1:])
    assert done.exit_code == 1
    reported = "cannot be used as root directory: it is a file; name a directory"
    assert done.stderr == f"postroomd: {tmp_path}/file {reported}\n"


@pytest.mark.parametrize("denied", ["root", "above"])
@pytest.mark.parametrize("command", ["run", "check-config"])
def test_a_root_that_cannot_be_read_is_reported_in_one_line(tmp_path, monkeypatch, command, denied):
    root = tmp_path / "above" / "root"
    root.mkdir(parents=True)
    if os.geteuid() == 0:  # who may read everything is refused nothing: the system's answer is put in its place
        if denied == "root":
            monkeypatch.setattr(os, "access", lambda path, mode: False)
        else:
            monkeypatch.setattr(Path, "stat", raise_permission_error)
    else:
        (root if denied == "root" else root.parent).chmod(0)
    done = postroomd(command, "--root", str(root))
    (tmp_path / "above").chmod(0o700)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"postroomd: {root} cannot be ")
    assert done.stderr.count("\n") == 1


def raise_permission_error(path, **options):
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("accept-loss", ()),
        ("access", ("--user", "root")),
        ("add-client", ("id", "--user", "root")),
        ("backup", ("--to", "-")),
        ("check-permissions", ()),
        ("export", ("--to", "-")),
        ("migrate", ("--to", "filesystem")),
        ("repair", ()),
        ("verify", ()),
    ],
)
def test_a_missing_root_is_reported_and_not_made(tmp_path, command, more):
    done = postroomd(command, "--root", str(tmp_path / "misspelt"), *more)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"postroomd: {tmp_path / 'misspelt'} does not exist: there is nothing to ")
    assert os.listdir(tmp_path) == []


def test_an_error_of_the_system_is_reported_with_advice(tmp_path, monkeypatch):
    root, away = str(tmp_path / "root"), tmp_path / "away"
    postroomd("init", "--root", root)
    postroomd("local", "publish", "--root", root, "--queue", "q", "--message", "m")
    done = postroomd("backup", "--root", root, "--to", str(away / "today.tar"))
    assert (done.exit_code, done.stderr) == (
        1,
        f"postroomd: {away} does not exist: create it first, or name another place\n",
    )
    denied = PermissionError(13, "Permission denied", str(tmp_path / "today.tar"))
    monkeypatch.setattr(os, "geteuid", lambda: 2**31)  # has no name
    assert refusal(denied) == f"{tmp_path / 'today.tar'}: Permission denied to the user {2**31}"
    assert refusal(OSError(5, "Input/output error")) == "[Errno 5] Input/output error"


def test_a_service_is_not_set_up_with_a_python_that_it_cannot_see(monkeypatch):
    program = Path(sys.executable).with_name("postroomd")
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setattr(setup, "HIDDEN", ())
    assert setup.service_program() == str(program)
    monkeypatch.setattr(setup, "HIDDEN", (str(Path(os.path.realpath(sys.executable)).parent),))
    with pytest.raises(setup.SetUpFailed, match="does not see"):
        setup.service_program()


def test_the_root_may_come_from_the_environment(tmp_path):
    done = postroomd("check-config", environ={"POSTROOM_ROOT": str(tmp_path)})
    assert done.exit_code == 0
    assert f"root {tmp_path}" in done.stdout
    done = postroomd("check-config")
    assert done.exit_code == 2
    assert "--root" in done.stderr


def test_check_config_shows_each_value_and_its_source(tmp_path):
    (tmp_path / "config.json").write_text('{"log": {"level": "debug"}, "lease": {"sweepIntervalMs": 0}}')
    environ = {"POSTROOM_NODE_ID": "n7"}
    done = postroomd("check-config", "--root", str(tmp_path), "--ipc-root", "box", environ=environ)
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert f'ipc.root "{tmp_path}/box" (flag --ipc-root)' in lines
    assert 'nodeId "n7" (environment POSTROOM_NODE_ID)' in lines
    assert 'log.level "debug" (file)' in lines
    assert 'backend "sqlite" (default)' in lines
    assert any(line.startswith("warning: ") and "lease.sweepIntervalMs" in line for line in lines)
    assert os.listdir(tmp_path) == ["config.json"]


def test_check_config_as_json_is_one_object_with_the_queues_policies(tmp_path):
    tree = {"policyDefaults": {"retry": {"limit": 2}}, "queues": [{"name": "q", "policy": {"visibilityTimeoutSec": 9}}]}
    (tmp_path / "config.json").write_text(json.dumps(tree))
    done = postroomd("check-config", "--root", str(tmp_path), "--json")
    shown = json.loads(done.stdout)
    assert (done.exit_code, shown["ok"], shown["warnings"]) == (0, True, [])
    assert set(shown["settings"]) == set(SETTINGS)
    policy = shown["queues"]["q"]["policy"]
    assert (policy["visibilityTimeoutSec"], policy["retry"]["limit"]) == (9, 2)


@pytest.mark.parametrize("command", [("run",), ("check-config",), ("local", "status")])
def test_a_wrong_configuration_is_one_line_and_exit_code_2(tmp_path, command):
    root = tmp_path / "root"
    queue = ["--queue", "q"] if command[0] == "local" else []
    done = postroomd(command[0], "--root", str(root), "--log-level", "loud", *command[1:], *queue)
    assert done.exit_code == 2
    expected = 'flag --log-level: log.level: expected one of debug, info, warning, error, got "loud"'
    assert done.stderr == f"postroomd: {expected}\n"
    assert not root.exists()


def test_check_config_as_json_reports_an_error_as_json(tmp_path):
    (tmp_path / "config.json").write_text('{"ipc": {"root": 5}}')
    done = postroomd("check-config", "--root", str(tmp_path), "--json")
    reported = json.loads(done.stdout)
    assert (done.exit_code, reported["ok"]) == (2, False)
    assert "ipc.root: expected path" in reported["error"]


def test_every_setting_has_a_flag(tmp_path):
    for known in SETTINGS.values():
        text = "false" if known.type is bool else "other" if known.type is Path else str(known.default) or "x"
        done = postroomd("check-config", "--root", str(tmp_path), "--json", known.flag, text)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["settings"][known.key]["source"] == f"flag {known.flag}"


def test_the_flags_of_the_cpp_daemon_are_accepted(tmp_path):
    flags = ["--db-path", "x.db", "--data-root", "d", "--log-root", "l", "--node-id", "n", "--visibility-timeout", "9"]
    done = postroomd("check-config", "--root", str(tmp_path), "--json", *flags)
    settings = json.loads(done.stdout)["settings"]
    assert settings["sqlite.dbPath"]["value"] == f"{tmp_path}/x.db"
    assert settings["lease.visibilityTimeoutSec"]["value"] == 9


def test_help_settings_lists_all_flags():
    done = postroomd("run", "--help-settings")
    assert done.exit_code == 0
    for known in SETTINGS.values():
        assert f"{known.flag} " in done.stdout
        assert known.environment in done.stdout


def test_a_log_record_cannot_forge_another_line():
    record = logging.LogRecord("x", logging.WARNING, "", 0, "client %s", ("a\nERROR all is lost\x1b[2J",), None)
    assert LineFormatter(timed=False).format(record) == "WARNING client a\\nERROR all is lost\\x1b[2J"


def test_each_line_of_a_traceback_carries_the_level():
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    lines = LineFormatter(timed=False).format(record).splitlines()
    assert lines[0] == "ERROR failed"
    assert all(line.startswith("ERROR ") for line in lines)


def test_each_line_begins_with_the_local_time_if_configured():
    record = logging.LogRecord("x", logging.INFO, "", 0, "ready", (), None)
    record.created = 1_800_000_000.25
    when, _, rest = LineFormatter(timed=True).format(record).partition(" ")
    assert rest == "INFO ready"
    assert ".250" in when
    assert datetime.fromisoformat(when).timestamp() == record.created


def test_local_has_every_command_and_every_field_of_the_protocol():
    commands = {command.name: command for command in cli_local.LOCAL_COMMANDS}
    policy, schedule, log = (commands.pop(name) for name in ("policy", "schedule", "log"))
    assert isinstance(policy, click.Group) and isinstance(schedule, click.Group) and isinstance(log, click.Group)
    assert sorted(log.commands) == ["append", "delete-reader", "move-reader", "read", "readers"]
    assert sorted(policy.commands) == ["get", "patterns", "set", "set-patterns"] and sorted(schedule.commands) == [
        "delete",
        "list",
        "set",
    ]
    grouped = sum(len(group.commands) for group in (policy, schedule, log))
    assert len(commands) + grouped == len(set(Command) - TOOL_COMMANDS)
    options = {option for parameter in commands["publish"].params for option in parameter.opts}
    assert {"--queue", "--message", "--attributes", "--priority", "--delay", "--target", "--msg-version"} <= options
    assert len(commands["publish"].params) == len(FIELDS[Command.PUBLISH]) + len(_OWN_OPTIONS)


def test_local_makes_no_root(tmp_path):
    done = postroomd("local", "--root", str(tmp_path / "gone"), "health")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"postroomd: {tmp_path}/gone does not exist")


def test_local_refuses_wrong_use_before_it_opens_anything(tmp_path):
    root = str(tmp_path / "root")
    for arguments in (
        ["publish", "--message", "m"],
        ["publish", "--queue", "q", "--message", "m", "--priority", "high"],
        ["publish", "--queue", "q", "--message", f"@{tmp_path}/gone"],
        ["policy", "set", "--queue", "q", "--policy", "{"],
        ["policy", "set", "--queue", "q", "--policy", '{"a": 1, "a": 2}'],
        ["publish", "--queue", "q\udcff", "--message", "m"],
        ["purge"],
        ["consume", "--queue", "q", "--payload-as", "foo"],
        ["pause", "--queue", "q", "--operation", "foo"],
        ["pause", "--queue", "q", "--operation", "consume", "--publish"],
    ):
        done = postroomd("local", "--root", root, *arguments)
        assert done.exit_code == 2, (arguments, done.output)
    assert not Path(root).exists()


def test_a_local_command_requires_a_root():
    done = postroomd("local", "health")
    assert done.exit_code == 2
    assert "--root" in done.stderr
    assert postroomd("local", "health", "--help").exit_code == 0


def test_local_explains_each_option_of_its_command_and_the_default() -> None:
    for words, said in (
        ("browse", ("held, dead or done (default ready)", "Maximum number of entries to print", "(default: all)")),
        ("purge", ("Do one page of at most so many messages (default: all pages)",)),
        ("nack", ("until it is retried, with --requeue (default: by the queue's policy)",)),
        ("publish", ("Milliseconds before the message can be consumed (default 0)",)),
        ("schedule set", ("skip, once or all (default once)", "the five fields (default UTC)")),
    ):
        shown = " ".join(postroomd("local", *words.split(), "--help").output.split())
        assert [text for text in said if text not in shown] == []
