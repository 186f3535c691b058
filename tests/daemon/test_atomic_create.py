"""New files and folders that get their name when they are whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from postroom_daemon.platform.atomic_create import UNFINISHED, PathTaken, new_file, new_folder

New = Callable[[Path], AbstractContextManager[Any]]


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_file_exists_only_when_it_is_complete(new: New, tmp_path: Path) -> None:
    with new(tmp_path / "new"):
        assert [path.name for path in tmp_path.iterdir()] == ["new" + UNFINISHED]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_failure_leaves_nothing(new: New, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new(tmp_path / "new"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_two_writers_at_once_do_not_mix_their_files(new: New, tmp_path: Path) -> None:
    with new(tmp_path / "new"), pytest.raises(PathTaken, match="another process is writing"), new(tmp_path / "new"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_file_made_meanwhile_is_not_overwritten(new: New, tmp_path: Path) -> None:
    with pytest.raises(PathTaken, match="has created"), new(tmp_path / "new"):
        (tmp_path / "new").write_text("another's")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "another's"}


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_remnants_of_a_killed_writer_are_replaced(new: New, tmp_path: Path) -> None:
    (tmp_path / ("new" + UNFINISHED)).mkdir()
    (tmp_path / ("new" + UNFINISHED) / "half").touch()
    with new(tmp_path / "new"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
