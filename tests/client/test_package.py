"""The client as a package: what it offers is what the protocol has, its types are true, it is light to import."""

from __future__ import annotations

import inspect
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from postroom_client import (
    ERRORS_BY_CODE,
    Client,
    ServerError,
    _codec,
    _lock,
    _protocol,
    errors,
)
from postroom_client.cli import arguments, names
from postroom_common.codec import decode_request
from postroom_common.protocol import FIELDS, JSON_DEPTH_LIMIT, TOOL_COMMANDS, Command, ErrorCode, Field
from tests.table import table

from .conftest import PACKAGE, ROOT

#: Public names of ``Client`` that are no commands.
BESIDE_COMMANDS = {
    *("call", "client_id", "close", "is_daemon_running", "prepare", "send"),
    *("consume", "publish_many", "reply", "drop_all", "reprocess_all", "request", "tail", "worker"),
}
DOCS = ROOT / "docs" / "client.md"


def fields(without: frozenset[Command] = frozenset()) -> dict[str, tuple[Command, Field]]:
    return {
        f"{command}.{field.name}": (command, field)
        for command in Command
        if command not in without
        for field in FIELDS[command]
    }


def python_name(field: Field) -> str:
    return "".join("_" + char.lower() if char.isupper() else char for char in field.name)


def test_the_generated_constants_are_those_of_the_protocol() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "generate-protocol"), "--check"])
    assert done.returncode == 0


def test_the_generator_notices_a_difference(tmp_path: Path) -> None:
    for part in ("scripts/generate-protocol", "packages/common/src/postroom_common/protocol.py"):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_bytes((ROOT / part).read_bytes())
    (tmp_path / "packages/common/src/postroom_common/__init__.py").touch()
    target = tmp_path / "packages/client/src/postroom_client/_protocol.py"
    target.parent.mkdir(parents=True)

    def generate(*arguments: str) -> int:
        command = [sys.executable, "-S", str(tmp_path / "scripts/generate-protocol"), *arguments]
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode

    assert generate("--check") == 1
    assert generate() == 0
    assert target.read_bytes() == (PACKAGE / "_protocol.py").read_bytes()
    assert generate("--check") == 0
    target.write_text(target.read_text().replace("4194304", "4194305"))
    assert generate("--check") == 1


def test_every_command_is_a_method_and_there_are_no_others() -> None:
    public = {name for name, _ in inspect.getmembers(Client) if not name.startswith("_")}
    assert public == set(Command) | BESIDE_COMMANDS


@table("command, field", fields())
def test_every_field_is_an_option_of_its_method(command: Command, field: Field) -> None:
    parameters = inspect.signature(getattr(Client, command)).parameters
    assert python_name(field) in parameters
    assert parameters["timeout"].default is None


@table("command, field", fields(without=TOOL_COMMANDS))
def test_every_field_is_an_option_of_the_command_line(command: Command, field: Field) -> None:
    options = names.option_names(field.name)
    (word,) = (word for word, name, _ in names.SUBCOMMANDS if name == command)
    for option in options:
        assert option in help_of(word)


@cache
def help_of(word: str) -> str:
    with redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        arguments.parse([*word.split(), "--help"])
    return said.getvalue()


def test_no_method_has_an_option_that_its_command_does_not_know() -> None:
    for command in Command:
        names = set(inspect.signature(getattr(Client, command)).parameters) - {"self", "timeout"}
        if command is Command.DELETE_QUEUE:
            names.remove("purge")  # what it says is done by another command before
        assert names == {python_name(field) for field in FIELDS[command]}, command


def test_every_command_has_one_word_on_the_command_line() -> None:
    assert sorted(command for _, command, _ in names.SUBCOMMANDS) == sorted(set(Command) - TOOL_COMMANDS)


def test_every_error_code_has_a_class_of_its_own_and_is_documented() -> None:
    assert set(ERRORS_BY_CODE) == set(ErrorCode)
    assert len(set(ERRORS_BY_CODE.values())) == len(ErrorCode)
    text = DOCS.read_text()
    for code, kind in ERRORS_BY_CODE.items():
        assert issubclass(kind, ServerError)
        assert (kind.__doc__ or "").startswith(code + ":")
        assert f"| {code} | `{kind.__name__}` |" in text


def test_every_error_class_and_exit_status_is_documented() -> None:
    text = DOCS.read_text()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert f"`{name}`" in text, name
    for name, status in vars(arguments).items():
        if name.startswith("EXIT_"):
            assert f"\n| {status} | " in text, name


def test_the_deepest_message_that_the_client_sends_is_read_by_the_daemons_codec() -> None:
    message: list[Any] = []
    for _ in range(JSON_DEPTH_LIMIT - 3):
        message = [message]
    data, _ = _codec.encode_request("r", "c", "publish", 1, 2, {"queue": "q", "message": message})
    assert decode_request(data).payload["message"] == message
    one_deeper = data.replace(b'"message":', b'"message":[', 1).replace(b"}}", b"]}}", 1)
    assert json.loads(one_deeper)
    with pytest.raises(Exception, match="nested deeper"):
        decode_request(one_deeper)


def test_the_liveness_lock_has_one_name_on_both_sides() -> None:
    from postroom_daemon.doors.mailbox import directories as sign

    assert sign.LOCK_NAME == _lock.LIVENESS_LOCK


def test_an_import_is_light() -> None:
    script = "import sys; before = set(sys.modules); import postroom_client; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-s", "-c", script], stdout=subprocess.PIPE, text=True, cwd=PACKAGE.parent
    )
    heavy = {"argparse", "ctypes", "uuid", "tempfile", "threading", "subprocess", "logging", "socket", "typing"}
    loaded = set(done.stdout.split())
    assert "postroom_client" in loaded
    assert not loaded & heavy


def test_the_package_has_no_data_files_and_reads_none() -> None:
    assert {path.suffix for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"} == {
        ".py",
        ".pyi",
        ".typed",
    }
    for path in PACKAGE.rglob("*.py"):
        assert "importlib" not in path.read_text(), path.name
        assert "__file__" not in path.read_text(), path.name


def test_the_clients_constants_are_those_of_the_protocol() -> None:
    assert tuple(Command) == _protocol.COMMANDS


def test_the_commands_that_copy_the_client_work_from_the_root_of_the_checkout(tmp_path: Path) -> None:
    lines = re.findall(r"^cp -r (\S+) /opt/(\S+) +# (.+)$", (DOCS.parent / "vendoring.md").read_text(), re.MULTILINE)
    assert len(lines) == 2
    (tmp_path / "myapp" / "myapp" / "libs").mkdir(parents=True)
    for source, target, statement in lines:
        subprocess.run(["cp", "-r", source, str(tmp_path / target)], check=True, cwd=ROOT)
        subprocess.run(
            [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = ['.']; {statement}"],
            check=True,
            cwd=tmp_path / "myapp",
        )
