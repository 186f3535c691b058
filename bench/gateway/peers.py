"""The peers that are installed on this machine, each durable, and on a free port of loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .amqp import Amqp
from .beanstalk import Beanstalk
from .driver import Connection
from .nats import JetStream
from .redis import RedisStream
from .systems import Contestant, Process, free_ports
from .wires import Wire

_VERSION_S: Final = 60.0
#: Where Debian has servers and RabbitMQ's own script, which any user may run.
_MORE_PATHS: Final = ("/usr/lib/rabbitmq/bin", "/usr/sbin", "/usr/local/sbin")


class Missing(Exception):
    """A server cannot be measured here; the text says why, and what to install."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another server: its program, the Debian package that has it, its protocol, and how it is started in a directory
    on a port. ``start`` returns the process and a note if it cannot be durable."""

    name: str
    program: str
    package: str
    wire: Callable[[str], Wire]
    note: str
    start: Callable[[ExitStack, Path, Path, int], tuple[Process, str]]
    version: Callable[[Path, Process], str] = field(default=lambda program, _: _said(program, "--version"))


@contextmanager
def running(peer: Peer, place: Path) -> Iterator[tuple[Contestant, str]]:
    """A peer, and its version. Raises ``Missing`` if it is not installed, and ``RuntimeError`` if it does not start."""
    path = os.pathsep.join((*_MORE_PATHS[:1], os.environ.get("PATH", os.defpath), *_MORE_PATHS[1:]))
    found = shutil.which(peer.program, path=path)
    if found is None:
        raise Missing(f"no {peer.program} on the PATH; on Debian: apt-get install {peer.package}")
    place.mkdir(parents=True)
    (port,) = free_ports(1)
    address = ("127.0.0.1", port)
    with ExitStack() as stack:
        process, lacking = peer.start(stack, Path(found), place.resolve(), port)
        stack.callback(process.stop)

        def connect() -> None:
            Connection(address, peer.wire("start")).socket.close()

        process.wait_for(connect)

        def left(queue: str) -> int:
            wire = peer.wire(queue)
            with Connection(address, wire).socket as connection:
                return wire.left(connection)

        yield (
            Contestant(
                peer.name,
                {"server": process.pid},
                address,
                peer.wire,
                left,
                lacking or peer.note,
                is_durable=not lacking,
            ),
            peer.version(Path(found), process),
        )


def _start_beanstalkd(stack: ExitStack, program: Path, place: Path, port: int) -> tuple[Process, str]:
    command = (program, "-l", "127.0.0.1", "-p", str(port), "-b", place, "-f0")
    return Process(command, place / "log"), ""


def _start_redis(stack: ExitStack, program: Path, place: Path, port: int) -> tuple[Process, str]:
    settings = {
        "bind": "127.0.0.1",
        "port": port,
        "dir": place,
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
    }
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return Process([program, *flags], place / "log"), ""


def _start_nats(stack: ExitStack, program: Path, place: Path, port: int) -> tuple[Process, str]:
    settings = place / "nats.conf"
    text = 'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{place}" {more} }}\n'
    settings.write_text(text.format(port=port, place=place, more=", sync_interval: always"))
    lacking = ""
    if subprocess.run([program, "-t", "-c", settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        settings.write_text(text.format(port=port, place=place, more=""))
        lacking = "NOT DURABLE: this version has no sync_interval (NATS 2.10 has) and syncs every two minutes"
    return Process([program, "-c", settings], place / "log"), lacking


def _start_rabbitmq(stack: ExitStack, program: Path, place: Path, port: int) -> tuple[Process, str]:
    """RabbitMQ with a node name, a cookie and an epmd (the port mapper of Erlang) of its own."""
    epmd = shutil.which("epmd")
    if epmd is None:
        raise Missing("no epmd on the PATH; on Debian: apt-get install erlang-base")
    epmd_port, node_port = free_ports(2)
    mapper = Process([epmd, "-address", "127.0.0.1", "-port", str(epmd_port)], place / "epmd.log")
    stack.callback(mapper.stop)
    (place / "enabled_plugins").write_text("[].\n")
    environment = {
        "HOME": str(place),
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": f"bench-{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(node_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONFIG_FILE": str(place / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(place / "none.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "logs"),
        "RABBITMQ_ALLOW_INPUT": "1",  # the script becomes the server instead of starting it
    }
    return Process([program, "-noinput"], place / "log", environment), ""


PEERS: Final = (
    Peer(
        "RabbitMQ",
        "rabbitmq-server",
        "rabbitmq-server",
        Amqp,
        "quorum queue of one node, publisher confirms; basic.get, and acks that are not answered",
        _start_rabbitmq,
        lambda _, process: _version_in(process.log().replace("\033[0m", ""), "RabbitMQ "),
    ),
    Peer(
        "NATS JetStream",
        "nats-server",
        "nats-server",
        JetStream,
        "sync_interval: always; file storage, one replica; acks with an answer",
        _start_nats,
    ),
    Peer(
        "beanstalkd",
        "beanstalkd",
        "beanstalkd",
        Beanstalk,
        "-f0 -b DIR",
        _start_beanstalkd,
        lambda one, _: _said(one, "-v"),
    ),
    Peer(
        "Redis streams",
        "redis-server",
        "redis-server",
        RedisStream,
        "appendfsync always; XREADGROUP, then XACK and XDEL in a transaction",
        _start_redis,
    ),
)


def _said(program: Path, flag: str) -> str:
    done = subprocess.run(
        [program, flag], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_VERSION_S
    )
    return _version_in(done.stdout)


def _version_in(text: str, before: str = "") -> str:
    found = re.search(before + r"(\d+(?:\.\d+)+)", text)
    return found[1] if found else "unknown"
