"""scripts/setup does nothing, and needs no network, when nothing has changed; an interpreter is found by running it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("arguments", [[], ["--with-spark"]], ids=["plain", "with Spark"])
def test_a_second_setup_changes_nothing_and_needs_no_network_and_no_home(root, tmp_path, arguments):
    if not sys.executable.startswith(str(root / ".venv")):
        pytest.skip("not run from the environment that scripts/setup made")
    before = stamps(root)
    assert len(before) == 2
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    command = [root / "scripts" / "setup", *arguments]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert stamps(root) == before
    assert list(tmp_path.iterdir()) == []


def stamps(root):
    return {path.name: path.stat().st_mtime_ns for path in (root / ".venv").glob("postroom-setup*.stamp")}


@pytest.mark.parametrize("arguments", [["--spark"], ["--with-spark", "more"]])
def test_a_setup_with_an_unknown_option_does_nothing(root, arguments):
    run = subprocess.run([root / "scripts" / "setup", *arguments], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "setup: unknown argument, the only one is --with-spark\n"


def test_a_java_home_without_java_is_reported_and_nothing_is_installed_instead(root, tmp_path):
    environment = dict(os.environ, JAVA_HOME=str(tmp_path), PIP_NO_INDEX="1")
    run = subprocess.run([root / "scripts" / "test"], env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    first, finding, mend = run.stderr.splitlines()
    assert first == "setup: Spark needs Java:"
    assert finding.endswith(f"JAVA_HOME is {tmp_path}, which has no executable bin/java")
    assert mend.endswith("-> set JAVA_HOME to a Java 17, 21 or 25, or unset it")


def test_an_interpreter_that_does_not_exist_is_not_found(root, tmp_path):
    run = subprocess.run([root / "scripts" / "find-python", "2.6", "9.9"], cwd=tmp_path, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")


def test_the_first_interpreter_that_exists_is_found(root):
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    run = subprocess.run([root / "scripts" / "find-python", "9.9", wanted], capture_output=True, text=True)
    assert run.returncode == 0
    found = subprocess.run(
        [run.stdout.strip(), "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
    )
    assert found.stdout.strip() == str(sys.version_info[:2])
