"""The documents describe everything that exists, and what they link to exists."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache

import click
import pytest

from postroom_client.cli.arguments import (
    EXIT_ERROR,
    EXIT_NO_ANSWER,
    EXIT_NOTHING,
    EXIT_OK,
    EXIT_USAGE,
    parse,
)
from postroom_client.cli.names import FILTER_KEYS, SUBCOMMANDS
from postroom_common.events import EventType
from postroom_common.protocol import ALIASES, FIELDS, Command, ErrorCode, ReasonCode
from postroom_daemon.cli import main as postroomd
from postroom_daemon.config.settings import SETTINGS
from postroom_daemon.engine.filters import KEYS

#: Longest line of a document, in characters.
LINE_LIMIT = 200


@pytest.fixture(scope="module")
def documents(root):
    texts = {path.name: path.read_text("utf-8") for path in root.glob("docs/*.md")}
    assert texts
    return texts


def assert_said(text, words):
    """The pattern begins with the word, not with what stands before it: that is looked for ten times as fast."""
    literals = {word: re.escape(word) for word in words}
    missing = [word for word, it in literals.items() if not re.search(rf"{it}(?<![\w-]{it})(?![\w-])", text)]
    assert not missing, f"not documented: {missing}"


def test_the_protocol_documents_every_command_and_alias(documents):
    assert_said(documents["protocol.md"], [*Command, *ALIASES])


@pytest.mark.parametrize("command", Command)
def test_the_protocol_documents_every_field_in_the_section_of_its_command(documents, command):
    heading = re.search(rf"^### .*\b{command}\b.*$", documents["protocol.md"], re.MULTILINE)
    assert heading, f"docs/protocol.md has no section about {command}"
    section = re.split(r"^#{2,3} ", documents["protocol.md"][heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    assert_said(section, [f"`{field.name}`" for field in FIELDS[command]] or [""])


def test_the_protocol_documents_every_error_code_and_reason(documents):
    assert_said(documents["protocol.md"], [*ErrorCode])
    assert_said("\n".join(documents.values()), [*ReasonCode])


def test_the_guide_to_incidents_helps_with_every_error_exit_code_and_alert(root, documents):
    guide = documents["incidents.md"]
    assert_said(
        guide, [*ErrorCode, "CLIENT_TIMEOUT", "DAEMON_NOT_RUNNING", "REQUEST_REJECTED", "MAILBOX_ERROR", "USAGE"]
    )
    assert_said(guide, [f"`{code}`" for code in (EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_NO_ANSWER, EXIT_NOTHING)])
    alerts = re.findall(r"- alert: (\w+)", (root / "packaging/monitoring/postroom-alerts.yml").read_text("utf-8"))
    assert alerts
    assert_said(guide, alerts)


def test_the_journal_documents_every_event(documents):
    assert_said(documents["journal.md"], EventType)


def test_the_configuration_documents_every_setting_and_how_its_other_names_follow(documents):
    assert_said(documents["configuration.md"], list(SETTINGS))
    assert "POSTROOM_" in documents["configuration.md"]


def test_the_daemon_s_commands_and_options_are_documented(documents):
    def walk(command, path):
        yield path, [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}")

    for path, options in walk(postroomd, "postroomd"):
        assert path in documents["cli-postroomd.md"]
        assert_said(documents["cli-postroomd.md"] + documents["configuration.md"], options)


def test_every_command_of_the_daemon_has_its_help():
    context = click.Context(postroomd)
    for name in postroomd.list_commands(context):
        command = postroomd.get_command(context, name)
        assert command is not None
        assert command.help or command.short_help


@pytest.mark.parametrize("words", [word.split() for word, _, _ in SUBCOMMANDS], ids=" ".join)
def test_the_client_s_commands_and_options_are_documented(documents, words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse([*words, "--help"])
    assert ended.value.code == 0
    assert_said(documents["client.md"], words)
    lines = re.findall(r"^  (-.*?)(?:  .*)?$", capsys.readouterr().out, re.MULTILINE)
    options = [re.findall(r"--[a-z][a-z-]*", line) for line in lines]
    assert ["--ipc-root"] in options
    for spellings in options:
        if spellings != ["--help"]:
            assert any(name in documents["client.md"] for name in spellings), f"not documented: {spellings}"


def test_the_guide_names_what_the_daemon_needs_wherever_it_says_how_to_get_it(root):
    needed = tomllib.loads((root / "packages/daemon/pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    guide = (root / "docs/install.md").read_text("utf-8")
    places = [guide.partition("It needs `")[2].partition(".")[0], guide.partition("pip download")[2].partition("#")[0]]
    for name, _, bound in (one.partition(",")[0].partition(">=") for one in needed):
        if not name.startswith("postroom-"):
            assert_said("`" + places[0], [f"`{name}`"])
            assert re.search(rf"(?<![\w-]){name}(?:>={bound}')?(?![\w-])", places[1]), f"not downloaded: {name}"


def test_the_client_s_help_and_the_protocol_name_every_key_of_a_filter(documents):
    assert sorted(FILTER_KEYS) == sorted(KEYS)
    assert_said(documents["protocol.md"].partition("### Filters")[2].partition("## 6")[0], [f"`{key}`" for key in KEYS])


def test_links_between_documents_lead_somewhere(root):
    for path in sorted(
        {*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("*/*/*.md"), *root.glob("tests/**/*.md")}
    ):
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text("utf-8"))):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            assert file.exists(), f"{path}: {target}"
            if anchor:
                assert anchor in anchors(file), f"{path}: {target}"


def test_files_that_the_documents_name_exist(root):
    tops = "packages|scripts|docs|tests|examples|bench"
    for path in [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("packages/*/README.md")]:
        for name in re.findall(rf"(?<![\w/.])(?:{tops})/[\w./-]*\w(?![\w*-])", path.read_text("utf-8")):
            where = [root / name, path.parent / name]
            assert any(place.exists() for place in where), f"{path} names {name}"


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(file):
    """The anchors of a document's headings, as sites that render Markdown create them."""
    headings = re.findall(r"^#+ (.+)$", without_code(file.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_line_of_a_document_is_longer_than_200_characters(root):
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=root, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    assert {"README.md", "docs/protocol.md", "packages/client/CHANGELOG.md"} <= set(names)
    for name in names:
        for number, line in enumerate((root / name).read_text("utf-8").splitlines(), 1):
            assert len(line) <= LINE_LIMIT, f"{name}:{number} has {len(line)} characters"


def test_every_decision_is_listed(root):
    index = (root / "docs" / "decisions" / "README.md").read_text("utf-8")
    for path in sorted((root / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert f"- [{title}]({path.name})" in index
        assert "violates" in path.read_text("utf-8"), f"{path.name} does not say what would violate it"
