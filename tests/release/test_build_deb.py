"""Reasons why a Debian package cannot be built are reported; a package does not contain its build path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from release.build_deb import main
from release.debian import check_tools
from release.errors import ReleaseError
from release.relocated import check_relocated


def test_an_interpreter_that_is_not_debian_s_is_refused(tmp_path: Path, capsys) -> None:
    assert main(["--python", sys.executable, "--out", str(tmp_path / "out")]) == 1
    assert "does not come from a Debian package, so no package can depend on it" in capsys.readouterr().err
    assert main(["--python", "/nowhere/python3"]) == 1
    assert "apt-get install python3" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_on_a_system_without_debian_s_tools_the_error_says_what_to_install(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseError, match=r"dpkg-deb, dpkg-gencontrol, dpkg-shlibdeps not found; .* dpkg-dev"):
        check_tools(Path("/usr/bin/python3"))


def test_a_package_that_does_not_exist_is_wrong_usage(capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["postroom-pipeline"])
    assert "there is no package postroom-pipeline" in capsys.readouterr().err


def test_a_file_that_contains_its_build_path_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "usr" / "lib" / "it"
    home.mkdir(parents=True)
    check_relocated(home, tmp_path)
    (home / "script").write_text(f"#!{tmp_path}/usr/lib/it/bin/python3\n")
    with pytest.raises(ReleaseError, match="usr/lib/it/script contains the build directory"):
        check_relocated(home, tmp_path)


@pytest.mark.parametrize("target", ["{stage}/usr/bin/python3", "/nowhere/python3"])
def test_a_dangling_link_is_reported(target: str, tmp_path: Path) -> None:
    home = tmp_path / "usr"
    home.mkdir()
    (home / "python3").symlink_to(target.format(stage=tmp_path))
    with pytest.raises(ReleaseError, match="usr/python3 points to"):
        check_relocated(home, tmp_path)
