"""Starts a daemon with the telemetry example feeding it, shows what flows, and stops all of it again.

With a terminal it shows a table until Ctrl-C. Without one it runs for --seconds (10), prints a summary and ends with
status 0, or with 1 if nothing flowed. If one of the programs ends by itself, it says which, and why.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from postroom_client import Client, PostroomError
from watch import Journal, cut, draw, event_line, look, printable, queue_table

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
READY_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
LOG_LINES = 15
#: Low on purpose, in percent of all processors: the start of one interpreter on one of them is more.
BUSY_PERCENT = round(4 / (os.cpu_count() or 1), 2)


class Ended(Exception):
    """Something that should run does not; the text says what and why."""


class Program:
    """A child process with its log file."""

    def __init__(self, name: str, command: list[str], log: Path, directory: Path) -> None:
        self.name = name
        self.log = log
        environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")
        with log.open("wb") as out:
            # A session of its own: Ctrl-C reaches this launcher alone, which stops the others in order.
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ``Ended`` if it no longer runs."""
        status = self._process.poll()
        if status is not None:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise Ended(f"{self.name} {how}. The end of {self.log}:\n{self._log_end()}")

    def stop(self) -> str | None:
        """Stop it and wait for its end; what was wrong with that, or None."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"{self.name} did not stop within {STOP_WITHIN_S:.0f} s of SIGTERM and was killed; see {self.log}"
        return None

    def _log_end(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
        return "\n".join("    " + printable(line) for line in lines) or "    (empty)"


def main() -> None:
    options = read_options()
    root: Path = options.root.resolve()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    programs: list[Program] = []
    problem = None
    try:
        start_all(programs, root, options.python)
        with Client(str(root / "ipc"), client_id=f"launch-{os.getpid()}", timeout=5) as client:
            journal = Journal(root / "journal")
            if sys.stdout.isatty() and options.seconds is None:
                show_until_interrupted(client, journal, root, programs)
            else:
                run_for(options.seconds or 10.0, client, journal, programs)
    except KeyboardInterrupt:
        print()
    except (Ended, PostroomError, OSError) as error:
        problem = str(error)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # stopping is short, and is not interrupted
        in_order = programs[1:] + programs[:1]  # those who publish first, the daemon last
        late = [text for text in [program.stop() for program in in_order] if text]
    print("start: all stopped" if programs else "start: nothing was started", file=sys.stderr)
    for text in ([problem] if problem else []) + late:
        print(f"start: {text}", file=sys.stderr)
    sys.exit(1 if problem or late else 0)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/start", description=__doc__)
    parser.add_argument("--root", type=Path, default=CHECKOUT / "run", help="the daemon's root directory (./run)")
    parser.add_argument("--python", metavar="PATH", help="run the example's programs on this interpreter")
    parser.add_argument("--seconds", type=float, help="run so long, then print a summary, also on a terminal")
    return parser.parse_args()


def start_all(programs: list[Program], root: Path, python: str | None) -> None:
    """Start the daemon, wait until it answers, then start the example's programs."""
    if serves(root):
        raise Ended(f"a daemon serves {root} already: stop it, or name another directory by --root")
    logs = root / "log"
    logs.mkdir(parents=True, exist_ok=True)
    daemon = [str(Path(sys.executable).with_name("postroomd")), "run", "--root", str(root)]
    programs.append(Program("postroomd", daemon, logs / "postroomd.log", root))
    wait_until_ready(programs[0], root)
    application = vendored_copy(root)
    old = python or older_python()
    print(f"start: sensor.py runs on {old or sys.executable}", file=sys.stderr)
    if old is None:
        print("start: no Python 2.7 found to show it on", file=sys.stderr)
    print(
        f"start: inspector.py rejects cpu above {BUSY_PERCENT} %, so that work shows as dead letters", file=sys.stderr
    )
    # The sensor comes first: what the start of the others costs is its first reading of the processor.
    for name, interpreter, arguments in (
        ("sensor", old, []),
        ("inspector", python, ["--limit", f"cpu=0:{BUSY_PERCENT}"]),
        ("worker", python, []),
    ):
        command = [interpreter or sys.executable, f"{name}.py", "--ipc-root", str(root / "ipc"), *arguments]
        programs.append(Program(name, command, logs / f"{name}.log", application))


def serves(root: Path) -> bool:
    """Whether a daemon has the mailbox there: it holds this lock while it serves."""
    try:
        with (root / "ipc" / "daemon.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def wait_until_ready(daemon: Program, root: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    with Client(str(root / "ipc"), client_id=f"launch-{os.getpid()}", timeout=1) as client:
        while True:
            daemon.check()
            try:
                client.health()
                return
            except (PostroomError, OSError) as error:
                if time.monotonic() > deadline:
                    raise Ended(f"postroomd does not answer within {READY_WITHIN_S:.0f} s: {error}") from None
                time.sleep(0.05)


def vendored_copy(root: Path) -> Path:
    """The legacy application as a device would have it: its programs, and the client copied beside them."""
    application = root / "telemetry"
    shutil.rmtree(application, ignore_errors=True)
    client = CHECKOUT / "packages" / "client" / "src" / "postroom_client"
    compiled = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(HERE / "application", application, ignore=compiled)
    shutil.copytree(client, application / "postroom_client", ignore=compiled)
    return application


def older_python() -> str | None:
    """A Python 2.7, if this machine has one."""
    find = subprocess.run([CHECKOUT / "scripts" / "find-python", "2.7"], capture_output=True, text=True)
    return find.stdout.strip() or None


def show_until_interrupted(client: Client, journal: Journal, root: Path, programs: list[Program]) -> None:
    while True:
        for program in programs:
            program.check()
        draw(look(client, journal, root, "Ctrl-C stops all of it"))
        time.sleep(1)


def run_for(seconds: float, client: Client, journal: Journal, programs: list[Program]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for program in programs:
            program.check()
        time.sleep(0.2)
    journal.read()
    print("\n".join(queue_table(client.list_queues()["queues"])))
    print("\nLAST EVENTS")
    for event in list(journal.last)[-10:]:
        print(event_line(event))
    dead = client.list_dlq("telemetry", limit=5)["messages"]
    print("\nDEAD LETTERS OF telemetry (first 5)" if dead else "\nNO DEAD LETTERS: every reading was in range")
    for letter in dead:
        print(cut(printable(f"{letter['reasonCode']}: {letter['reason']}"), 120))
    commands = client.metrics()["commands"]
    counts = ", ".join(f"{commands.get(name, 0)} {name}" for name in ("publish", "consume", "ack", "nack"))
    print(f"\nIn {seconds:.0f} s: {counts}")
    if not commands.get("publish") or not commands.get("ack"):
        raise Ended("no message made the whole way; see the files in the log directory")


if __name__ == "__main__":
    main()
