"""On a cluster of this machine: what is shipped by spark-submit runs where nothing of ours is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
import zipfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from postroom_pipeline.spark.java import find_java
from release.building import build
from release.packages import find_package
from tests.pipeline.conftest import TEST_SETTINGS, java_variables

SPARK = Path(pyspark.__file__).parent
#: Has neither the pipeline nor PySpark nor click: only what Spark and the archive bring.
BARE_PYTHON = getattr(sys, "_base_executable", sys.executable)
QUICK_JAVA = TEST_SETTINGS["spark.driver.extraJavaOptions"]
#: Generous: it fails only where something hangs.
DEADLINE_S = 600

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The archive and the entry, made by the package as its wheel installs it."""
    home = tmp_path_factory.mktemp("shipped")
    for name in ("common", "pipeline"):
        with zipfile.ZipFile(build(find_package(name), home / "wheels", "wheel")) as wheel:
            wheel.extractall(home / "site")
    command = [sys.executable, "-m", "postroom_pipeline", "package", "--out", str(home / "ship")]
    subprocess.run(command, check=True, env=dict(os.environ, PYTHONPATH=str(home / "site")), stdout=subprocess.DEVNULL)
    return home / "ship" / "postroom_pipeline.zip", home / "ship" / "run.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """What everything of Spark's is started with."""
    return java_variables() | {
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYSPARK_PYTHON": BARE_PYTHON,
        "SPARK_HOME": str(SPARK),
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",  # else a worker looks for a build of Spark
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, environment):
    """The addresses of a master (for jobs, and of its pages) with a worker that has room for two executors."""
    home = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:

        def start(name, *arguments):
            place = ["--host", "127.0.0.1", "--webui-port", "0"]
            return stack.enter_context(started(name, [*place, *arguments], home / f"{name}.log", environment))

        log = start("Master", "--port", "0")
        url = reported(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        pages = f"http://127.0.0.1:{reported(log, r'MasterWebUI.* started at http://[a-z0-9.]+:([0-9]+)')}"
        log = start("Worker", "--work-dir", str(home / "work"), "--cores", "2", "--memory", "1g", url)
        reported(log, r"Successfully registered with master")
        yield url, pages


@contextmanager
def started(name, arguments, log, environment):
    """A process of the cluster, as Spark's scripts would start it; it is ended with the block."""
    java = [find_java().path, *QUICK_JAVA.split(), "-Xmx256m", "-cp", str(SPARK / "jars" / "*")]
    java.append("-Dspark.master.rest.enabled=false")  # it has a port of its own, always the same
    command = [*java, f"org.apache.spark.deploy.{name.lower()}.{name}", *arguments]
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def reported(log, pattern):
    """What a log says, as soon as it does."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found:
            return found[found.re.groups]
        time.sleep(0.05)
    raise AssertionError(f"{pattern} is not in:\n{log.read_text()}")


def state_at_rest(pages):
    """What the master knows when it has heard that no application runs any more."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with urllib.request.urlopen(f"{pages}/json/", timeout=DEADLINE_S) as answer:
            state = json.load(answer)
        if not state["activeapps"] or time.monotonic() > deadline:
            return state
        time.sleep(0.05)


def submit(cluster, shipped, environment, *arguments):
    archive, entry = shipped
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
    }
    command = [SPARK / "bin" / "spark-submit", "--master", cluster[0], "--py-files", archive]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.run(
        [*command, entry, *arguments], env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )


def test_a_cluster_runs_what_was_shipped_and_says_that_it_finished(cluster, shipped, environment, tmp_path):
    tables = tmp_path / "tables"
    run = submit(cluster, shipped, environment, "doctor", "--only", "spark", "--out", str(tables), "--json")
    assert run.returncode == 0, run.stdout + run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert [(one["check"], one["verdict"]) for one in found] == [("spark", "ok"), ("tables", "ok"), ("executors", "ok")]
    assert f" on {cluster[0]}, 2 cores" in found[0]["seen"]
    state = state_at_rest(cluster[1])
    assert [worker["state"] for worker in state["workers"]] == ["ALIVE"]
    assert [(app["name"], app["state"]) for app in state["completedapps"]] == [("postroom-pipeline doctor", "FINISHED")]
    assert state["activeapps"] == []


def test_a_failure_on_a_cluster_is_the_status_of_spark_submit(cluster, shipped, environment):
    run = submit(cluster, shipped, environment, "doctor", "--only", "in")
    assert run.returncode == 2
    assert run.stdout == "postroom-pipeline: --only in needs --in DIR\n"  # spark-submit puts both outputs into one
