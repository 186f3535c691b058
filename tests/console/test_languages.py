"""The console in each of its languages: the catalogs are complete, and every screen keeps its shape."""

from __future__ import annotations

import gettext
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.screen import ModalScreen

from postroom_client import Client
from postroom_console import i18n
from postroom_console.data.rows import Column
from postroom_console.data.text import CUT, width
from postroom_console.i18n import LANGUAGES, language_of, tr, trn, use_language
from postroom_console.tui.keys import with_hangul
from postroom_console.tui.row_list import RowList
from postroom_console.tui.widgets import Line
from tests.console.desk import Desk, sit_down
from tests.wire.daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = Path("packages", "console", "src", "postroom_console")
CATALOG = CONSOLE / "locale" / "ko" / "LC_MESSAGES" / "postroom-console.po"
OTHERS = tuple(language for language in LANGUAGES if language != "en")
#: In the widest language also the screen that has room for more.
TOURS = [(language, size) for language in OTHERS for size in ((80, 24), (60, 20))] + [("ja", (120, 40))]


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    """The language is one for the whole process."""
    yield
    use_language("en")


# --- catalogs -------------------------------------------------------------------------------------------------


def check(root: Path) -> subprocess.CompletedProcess[str]:
    """Whether the catalogs of a checkout are whole."""
    command = [sys.executable, str(root / "scripts" / "generate-catalogs"), "--check"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the catalogs are made of."""
    shutil.copytree(ROOT / CONSOLE, tmp_path / CONSOLE, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "generate-catalogs", tmp_path / "scripts")
    return tmp_path


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def test_every_text_is_translated_into_every_language() -> None:
    run = check(ROOT)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [
        ("한 페이지 위로", "", "ko: not translated: 'a page up'"),
        (
            "{queue} 큐를 재개합니다.",
            "{que} 큐를 재개합니다.",
            r"ko: placeholders are not ['queue']: '{queue} is resumed.'",
        ),
        ('msgid "a page up"', '#, fuzzy\nmsgid "a page up"', "ko: fuzzy: 'a page up'"),
        ('msgid "a page up"', 'msgid "a leaf up"', "ko: postroom-console.po is out of date"),
        ("한 페이지 위로", "한 쪽 위로", "ko: postroom-console.mo is out of date"),
    ],
)
def test_an_incomplete_catalog_is_reported(checkout: Path, before: str, after: str, reported: str) -> None:
    replace(checkout / CATALOG, before, after)
    run = check(checkout)
    assert run.returncode == 1
    assert reported in run.stderr


def test_a_new_text_must_be_translated_completely_wherever_it_is_used(checkout: Path) -> None:
    module = checkout / CONSOLE / "paths.py"
    module.write_text(
        module.read_text() + "\nTEXTS = f\"{tr('in braces')}\", mark('by a variable'), tr('on', 'stove')\n"
    )
    reported = check(checkout).stderr
    assert all(f"ko, ja, zh: not translated: {text}" in reported for text in ("'in braces'", "'by a variable'"))
    assert "ko, ja, zh: not translated: 'on' (stove)" in reported
    module.write_text(module.read_text() + "\ntr(f'{TEXTS} more')\n")
    run = check(checkout)
    assert run.returncode == 1
    assert "paths.py: line" in run.stderr


# --- which language -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ja"}, "ja"),
        ({"LANG": "zh_TW.UTF-8"}, "zh"),
        ({"LANG": "zh-Hans-CN@pinyin"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "kok_IN"}, "en"),
        ({"LANG": "ko_KR", "LC_MESSAGES": "ja_JP"}, "ja"),
        ({"LANG": "ko_KR", "LC_MESSAGES": "ja_JP", "LC_ALL": "zh_CN"}, "zh"),
        ({"LANG": "ko_KR", "LC_ALL": ""}, "ko"),
        ({"LANG": "ko_KR", "LC_ALL": "C"}, "en"),
        ({"LANG": "POSIX"}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "en_US", "LANGUAGE": "ja:ko"}, "ja"),
        ({"LANG": "en_US", "LANGUAGE": "fr:zh_HK:ko"}, "zh"),
        ({"LANG": "ko_KR", "LANGUAGE": "en:ja"}, "en"),
        ({"LANG": "ko_KR", "LANGUAGE": "fr:C:ja"}, "en"),
        ({"LANG": "ko_KR", "LANGUAGE": ""}, "ko"),
        ({"LANG": "C", "LANGUAGE": "ko"}, "en"),
        ({"LANGUAGE": "ko"}, "en"),
    ],
)
def test_the_environment_decides_by_gettext_s_rules(environment: dict[str, str], language: str) -> None:
    assert language_of(environment) == language


def test_a_language_that_is_named_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "ja_JP.UTF-8")
    assert use_language("ko") == "ko"
    assert tr("QUEUE") == "큐"
    assert use_language() == "ja"
    assert tr("QUEUE") == "キュー"
    assert use_language("en") == "en"
    assert tr("QUEUE") == "QUEUE"


def test_one_english_word_may_have_two_translations_and_an_empty_text_stays_empty() -> None:
    use_language("ko")
    assert tr("PAUSED") != tr("PAUSED", "tail")
    assert trn("{n} lease", "{n} leases", 12_345) == "리스 12,345"
    assert tr("") == ""
    use_language("en")
    assert tr("PAUSED", "tail") == "PAUSED"
    assert trn("{n} lease", "{n} leases", 1) == "1 lease"


@pytest.mark.parametrize(
    ("environment", "flags", "text"),
    [
        ({"LANG": "ja_JP.UTF-8"}, (), "コンソールの記録ではない"),
        ({"LANG": "ja_JP.UTF-8"}, ("--lang", "ko"), "콘솔의 녹화 파일이 아니거나"),
        ({"LANG": "ja_JP.UTF-8", "LC_ALL": "C"}, (), "not a recording of a console"),
        ({"LANG": "zh_TW.UTF-8", "PYTHONUTF8": "0"}, (), "这不是控制台的录制文件"),
    ],
)
def test_the_command_speaks_the_language(environment: dict[str, str], flags: tuple[str, ...], text: str) -> None:
    command = [str(Path(sys.executable).with_name("postroom-console")), *flags, "--once", "--replay", __file__]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    run = subprocess.run(command, capture_output=True, env={**kept, **environment})
    assert run.returncode == 1
    assert text in run.stderr.decode()


# --- screens --------------------------------------------------------------------------------------------------


class Missed(gettext.NullTranslations):
    """Keeps the texts that a catalog does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: set[str] = set()

    def gettext(self, message: str) -> str:
        self.texts.add(message)
        return message

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        self.texts.add(msgid1)
        return msgid1

    def pgettext(self, context: str, message: str) -> str:
        self.texts.add(f"{message} ({context})")
        return message


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A device with a queue of each kind, one with a name of wide characters, and a dead letter and a lease in it."""
    daemon = Daemon(tmp_path_factory.mktemp("device") / "root").start()
    try:
        with Client(str(daemon.ipc), client_id="collector") as client:
            for queue in ("수집-센서", "設定更新", "alarms"):
                for _ in range(3):
                    client.publish(queue, {"note": "起動完了 연결 거부"})
                taken = client.consume_next(queue, consumer_id="worker-1")
                assert taken
                client.nack(taken, reason="연결 거부: 接続できません")
                client.consume_next(queue, consumer_id="worker-2", visibility_timeout_sec=600)
            client.pause("設定更新")
        yield daemon
    finally:
        daemon.kill()
        print(daemon.log())


class Tour:
    """A look at each screen in one language. ``cut`` are the lines that had no room for what they say."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.cut: set[str] = set()

    async def go(self) -> None:
        desk = self.desk
        await desk.has("queues", 3)
        await desk.has("recent")
        self.look("queues")
        for rows, keys in (("tail", "2"), ("leases", "3"), ("letters", "4"), ("", "5"), ("log", "6")):
            await desk.keys(keys)
            if rows and rows != "log":
                await desk.has(rows)
            self.look(f"view {keys}")
        await desk.keys("4")
        await desk.has("letters")
        desk.console.screen.query_one("#letters", RowList).focus()
        await self.look_at_dialogs("rax")
        await desk.keys("enter")
        await desk.sees(tr("BODY"))
        self.look("message")
        await desk.keys("escape", "1")
        await desk.has("queues", 3)
        await self.look_at_dialogs("pm")
        await desk.keys("enter")
        await desk.has("messages")
        await desk.has("policy")
        self.look("queue")
        await desk.keys("question_mark")
        desk.is_in_shape()
        await desk.keys("escape", "colon")
        desk.is_in_shape()

    async def look_at_dialogs(self, keys: str) -> None:
        """Look at what each key opens, and leave it. Where there is room for more they are not looked at again."""
        desk = self.desk
        if desk.console.size.width > 60:
            return
        for key in keys:
            await desk.keys(key)
            desk.is_in_shape()
            screen = desk.console.screen
            assert isinstance(screen, ModalScreen)
            outside = [line for line in screen.query(Line) if not screen.region.contains_region(line.region)]
            assert [str(line.render()) for line in outside] == []
            await desk.keys("escape")

    def look(self, name: str) -> None:
        """Look at a screen."""
        self.desk.is_in_shape()
        screen = self.desk.console.screen
        for line in ("views", "keys"):
            if shown(screen, f"#{line}").endswith(CUT):
                self.cut.add(f"{name}: {line}")
        for rows in screen.query(RowList):
            self.cut |= {f"{name}: {rows.id} {number}" for number, one in enumerate(rows.columns) if is_cut(one)}


def shown(screen: Any, selector: str) -> str:
    return str(screen.query_one(selector, Line).render()).rstrip()


def is_cut(column: Column) -> bool:
    return width(column.title) > column.cells


def tour(device: Daemon, language: str, size: tuple[int, int]) -> set[str]:
    """The lines that are cut in a language. Fails where a screen has lost its shape, or a text is not translated."""
    use_language(language)
    missed = Missed()
    i18n._translations.add_fallback(missed)
    cut: set[str] = set()

    async def visit(desk: Desk) -> None:
        nonlocal cut
        made = Tour(desk)
        await made.go()
        cut = made.cut

    sit_down(device, visit, size=size)
    assert missed.texts == set()
    return cut


@pytest.mark.parametrize(("language", "size"), TOURS, ids=str)
def test_every_screen_keeps_its_shape_and_no_title_is_cut(device: Daemon, language: str, size: tuple[int, int]) -> None:
    assert tour(device, language, size) == set()


def test_keys_work_while_hangul_is_switched_on(device: Daemon) -> None:
    async def visit(desk: Desk) -> None:
        await desk.has("queues", 3)
        await desk.keys("ㅔ")
        await desk.sees("y yes")
        await desk.keys("ㅜ")
        await desk.sees("nothing was changed")
        await desk.keys("slash", "ㅔ")
        await desk.sees("ㅔ")
        assert not isinstance(desk.console.screen, ModalScreen)
        await desk.keys("escape", "ㅂ")
        assert desk.console._exit

    sit_down(device, visit)


def test_the_letters_of_a_korean_keyboard_act_as_the_latin_keys_in_their_place() -> None:
    assert with_hangul("q") == "q,ㅂ"
    assert with_hangul("k,up") == "k,up,ㅏ"
    assert with_hangul("P") == "P,ㅖ"
    assert with_hangul("U,escape,slash") == "U,escape,slash"
    letters = [with_hangul(letter).partition(",")[2] for letter in "abcdefghijklmnopqrstuvwxyz"]
    assert len(set(letters)) == 26
    assert all(re.fullmatch("[ㄱ-ㅣ]", letter) for letter in letters)
