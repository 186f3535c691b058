"""Start a daemon and the telemetry example, show the messages that flow, and stop everything at the end.

On a terminal, opens the console; q stops everything. Without a terminal, runs for --seconds (10), prints a summary and
exits with status 0, or with 1 if no message was acknowledged. If one of the programs ends by itself, says which and
shows the end of its log. Messages and logs stay in the root directory for the next start.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from postroom_client import Client, PostroomError
from postroom_console.data.text import clean

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0
LOG_LINES = 15
LINE_CELLS = 120
#: The gateway's configuration after a first start with it, and the daemon's, which lets clients of LMQ and WebSocket MQ
#: do what these let them do. WebSocket MQ's own port, 8080, is often taken.
GATEWAY = """\
[daemon]
socket = "ipc/lane.sock"

[doors.lmq-http]
port = 9980

[doors.lmq-rpc]
port = 18800

[doors.mq-websocket]
port = 18080

[doors.simplemq]
port = 8081

[doors.simplemq-tcp]
port = 9090

[observe]          # /health and /metrics
port = 9981
"""
OPERATORS = ["group postroom-ops", *(f"principal anonymous:{door}" for door in ("lmq-http", "lmq-rpc", "mq-websocket"))]
CONFIGURATION = {"access": {"operators": OPERATORS}, "limits": {"userStoredBytes": 0}}
#: Low on purpose, in percent of all processors: the start of one interpreter on one of them is more.
BUSY_PERCENT = round(4 / (os.cpu_count() or 1), 2)


class Ended(Exception):
    """Something that should run does not; the text says what and why."""


class Interrupts:
    """Lets SIGINT, SIGTERM and SIGHUP raise ``KeyboardInterrupt``: the first two whoever started this process, SIGHUP
    unless its starter ignores it, as ``nohup`` does."""

    def __init__(self) -> None:
        #: While set, a signal raises nothing.
        self.is_deferred = False
        self._is_pending = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A signal during the block raises at its end: a program that is being started must not be forgotten."""
        self.is_deferred = True
        try:
            yield
        except BaseException:
            self.is_deferred = False
            raise
        self.resume()

    def resume(self) -> None:
        """Let signals raise again. Raises for one that came meanwhile."""
        self.is_deferred = False
        if self._is_pending:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: Any) -> None:
        if not self.is_deferred:
            raise KeyboardInterrupt
        self._is_pending = True


class Program:
    """A child process with its log file."""

    def __init__(self, name: str, command: list[str], log: Path, directory: Path) -> None:
        self.name = name
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            # A session of its own: Ctrl-C reaches this launcher alone, which stops the others in order.
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env=own_environment(os.environ),
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

    def wait(self, seconds: float) -> int:
        """Its exit status, once it has ended. Raises ``subprocess.TimeoutExpired``."""
        return self._process.wait(seconds)

    def stop(self) -> str | None:
        """Stop it and wait for its end; what was wrong with that, or None."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"{self.name} did not stop within {STOP_WITHIN_S:.0f} s of SIGTERM and was killed; see {self.log}"
        return None

    def _log_end(self) -> str:
        text = self.log.read_bytes()[self._log_start :].decode("utf-8", "replace")
        lines = text.splitlines()[-LOG_LINES:]
        return "\n".join("    " + clean(line) for line in lines) or "    (empty)"


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of what is started. An exported setting is meant for the user's own daemon and mailbox."""
    kept = {name: text for name, text in environ.items() if not name.startswith("POSTROOM_")}
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def main() -> None:
    options = read_options()
    root: Path = options.root.resolve()
    problem = problem_of_options(options, root)
    if problem:
        print(f"start: {problem}", file=sys.stderr)
        sys.exit(2)
    interrupts = Interrupts()
    programs: list[Program] = []
    try:
        start_all(programs, root, options.python, options.with_gateway, interrupts)
        with Client(str(root / "ipc"), client_id=f"launch-{os.getpid()}", timeout=5) as client:
            if sys.stdin.isatty() and sys.stdout.isatty() and options.seconds is None:
                show_until_left(root, programs, interrupts)
            else:
                run_for(10.0 if options.seconds is None else options.seconds, client, root, programs)
    except KeyboardInterrupt:
        print()
    except (Ended, PostroomError, OSError, subprocess.SubprocessError) as error:
        problem = str(error)
    finally:
        interrupts.is_deferred = True  # stopping is short, and is not interrupted
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
    parser.add_argument(
        "--with-gateway",
        action="store_true",
        help="start the gateway too; creates ROOT/gateway.toml, and ROOT/config.json with its clients as operators",
    )
    parser.add_argument("--seconds", type=float, help="run this long, then print a summary, also on a terminal")
    return parser.parse_args()


def problem_of_options(options: argparse.Namespace, root: Path) -> str | None:
    """What keeps these options from being carried out, on one line, or None. Makes the root directory."""
    if options.seconds is not None and not 0 < options.seconds < math.inf:
        return f"--seconds {options.seconds:g}: expected a number above 0"
    if options.python:
        try:
            ran = subprocess.run([options.python, "-c", ""], stdin=subprocess.DEVNULL, capture_output=True)
        except OSError as error:
            return f"--python {options.python}: cannot be run: {error.strerror}"
        if ran.returncode:
            return f"--python {options.python}: is not a working Python (it exited with status {ran.returncode})"
    try:
        (root / "log").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"--root {root}: cannot be created: {error.strerror}; name a directory in which you may write"
    return None


def start_all(
    programs: list[Program], root: Path, python: str | None, with_gateway: bool, interrupts: Interrupts
) -> None:
    """Start the daemon, wait until it answers, then start the example's programs, and the gateway if it is wanted."""
    if serves(root):
        raise Ended(f"a daemon already serves {root}: stop it, or name another directory with --root")
    logs = root / "log"
    daemon = [str(Path(sys.executable).with_name("postroomd")), "run", "--root", str(root)]
    if with_gateway:
        daemon += ["--gateway-users", str(os.getuid())]
        configure_for_gateway(root)
    with interrupts.deferred():
        programs.append(Program("postroomd", daemon, logs / "postroomd.log", root))
    wait_until_ready(programs[0], root)
    application = vendored_copy(root)
    old = python or older_python()
    print(f"start: sensor.py runs on {old or sys.executable}", file=sys.stderr)
    if old is None:
        print("start: no Python 2.7 found; with one, sensor.py would run on it", file=sys.stderr)
    print(f"start: inspector.py rejects cpu above {BUSY_PERCENT} %: its dead letters are intended", file=sys.stderr)
    # The sensor comes first: what the start of the others costs is its first reading of the processor.
    for name, interpreter, arguments in (
        ("sensor", old, []),
        ("inspector", python, ["--limit", f"cpu=0:{BUSY_PERCENT}"]),
        ("worker", python, []),
    ):
        command = [interpreter or sys.executable, f"{name}.py", "--ipc-root", str(root / "ipc"), *arguments]
        with interrupts.deferred():
            programs.append(Program(name, command, logs / f"{name}.log", application))
    if with_gateway:
        start_gateway(programs, root, interrupts)


def configure_for_gateway(root: Path) -> None:
    """Write the configurations that do not exist yet; those that do stay as they are."""
    if not (root / "gateway.toml").exists():
        (root / "gateway.toml").write_text(GATEWAY)
    configuration = root / "config.json"
    if not configuration.exists():
        configuration.write_text(json.dumps(CONFIGURATION, indent=2) + "\n")
        print(
            f"start: the gateway's clients may do everything, by access.operators in {configuration}", file=sys.stderr
        )


def start_gateway(programs: list[Program], root: Path, interrupts: Interrupts) -> None:
    """Start the gateway with the configuration in the root directory."""
    configuration = root / "gateway.toml"
    command = [str(Path(sys.executable).with_name("postroom-gateway")), "run", "--config", str(configuration)]
    log = root / "log" / "gateway.log"
    print(
        f"start: the gateway's doors and ports are in {configuration} (LMQ at http://127.0.0.1:9980, WebSocket"
        " MQ at ws://127.0.0.1:18080, SimpleMQ at http://127.0.0.1:8081,"
        f" health at http://127.0.0.1:9981/health); log {log}",
        file=sys.stderr,
    )
    with interrupts.deferred():
        programs.append(Program("postroom-gateway", command, log, root))


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


def console(root: Path, *arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("postroom-console")), "--root", str(root), *arguments]


def show_until_left(root: Path, programs: list[Program], interrupts: Interrupts) -> None:
    """The console on this terminal, until it is left or one of the programs ends."""
    interrupts.is_deferred = True
    screen = subprocess.Popen(console(root), env=own_environment(os.environ))
    try:
        interrupts.resume()
        while screen.poll() is None:
            for program in programs:
                program.check()
            time.sleep(0.2)
    finally:
        if screen.poll() is None:
            screen.terminate()
            screen.wait(STOP_WITHIN_S)


def run_for(seconds: float, client: Client, root: Path, programs: list[Program]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for program in programs:
            program.check()
        time.sleep(0.2)
    sys.stdout.flush()
    subprocess.run(console(root, "--once", "--width", str(LINE_CELLS)), env=own_environment(os.environ), check=True)
    commands = client.metrics()["commands"]
    counts = ", ".join(f"{commands.get(name, 0)} {name}" for name in ("publish", "consume", "ack", "nack"))
    print(f"\nIn {seconds:.0f} s: {counts}")
    if not commands.get("publish") or not commands.get("ack"):
        raise Ended(f"no message was acknowledged; see the files in {root / 'log'}")


if __name__ == "__main__":
    main()
