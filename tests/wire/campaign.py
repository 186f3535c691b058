"""The long forms of the wire tests, by ``scripts/campaign``: each prints its conditions and what it saw."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.wire.audit import audit, audit_bodies
from tests.wire.chaos import Outcome, run_chaos
from tests.wire.daemon import Daemon
from tests.wire.flood import flood_before_start, flood_while_running

T = TypeVar("T")

#: Longest time without the end of a step (s).
PATIENCE_S = 1800


def chaos(options: argparse.Namespace) -> None:
    """Eight clients publish and consume while the daemon is killed."""
    print(f"chaos: {options.messages} messages, {options.kills} kills, seed {options.seed}")

    def run(daemon: Daemon) -> Outcome:
        return run_chaos(daemon, options.messages, options.kills, options.seed, PATIENCE_S)

    on_fresh_root(run, options.backend)


def cluster(options: argparse.Namespace) -> None:
    """Clients publish, lease and acknowledge while machines of a cluster, links and NATS servers fail."""
    from tests.cluster.faults import campaign
    from tests.cluster.servers import Servers

    print(f"cluster: {options.faults} faults, seed {options.seed}")
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="postroom-campaign-"))
    servers = Servers(folder)
    try:
        print(campaign(servers, folder, options.faults, options.seed))
    except BaseException:
        print(f"what is left of it: {folder}", file=sys.stderr)
        raise
    finally:
        servers.stop()
    shutil.rmtree(folder)
    print(f"held, {time.monotonic() - began:.1f} s in all")


def gateway(options: argparse.Namespace) -> None:
    """Clients of LMQ push and pull on both doors while the daemon and the gateway are killed in turn."""
    from tests.gateway import chaos as gateway_chaos

    print(f"gateway: {options.messages} messages, {options.kills} kills, seed {options.seed}")

    def run(daemon: Daemon) -> gateway_chaos.Outcome:
        return gateway_chaos.run_chaos(daemon, options.messages, options.kills, options.seed, PATIENCE_S)

    on_fresh_root(run, options.backend, flags=("--gateway-users", str(os.getuid())))


def websocket(options: argparse.Namespace) -> None:
    """Clients of WebSocket MQ draft, order and complete while the daemon and the gateway are killed in turn."""
    from tests.gateway.websocket_mq import chaos as websocket_chaos
    from tests.gateway.websocket_mq.queue import CONFIG

    print(f"websocket: {options.messages} messages, {options.kills} kills, seed {options.seed}")

    def run(daemon: Daemon) -> websocket_chaos.Outcome:
        return websocket_chaos.run_chaos(daemon, options.messages, options.kills, options.seed, PATIENCE_S)

    on_fresh_root(run, options.backend, config=CONFIG)


def simplemq(options: argparse.Namespace) -> None:
    """Clients of SimpleMQ publish and settle while the daemon and the gateway are killed in turn."""
    from tests.gateway.simplemq import chaos as simplemq_chaos
    from tests.gateway.simplemq.place import CONFIG

    print(f"simplemq: {options.messages} messages, {options.kills} kills, seed {options.seed}")

    def run(daemon: Daemon) -> simplemq_chaos.Outcome:
        return simplemq_chaos.run_chaos(daemon, options.messages, options.kills, options.seed, PATIENCE_S)

    on_fresh_root(run, options.backend, config=CONFIG)


def smss(options: argparse.Namespace) -> None:
    """Clients of smss publish to logs and read them while the daemon and the gateway are killed in turn."""
    from tests.gateway.smss import chaos as smss_chaos
    from tests.gateway.smss.place import CONFIG

    print(f"smss: {options.kills} kills under messages of each of {smss_chaos.SIZES} bytes, seed {options.seed}")

    def run(daemon: Daemon) -> smss_chaos.Outcome:
        return smss_chaos.run_chaos(daemon, smss_chaos.SIZES, options.kills, options.seed, PATIENCE_S)

    on_fresh_root(run, options.backend, config=CONFIG)


def flood(options: argparse.Namespace) -> None:
    """Very many request files at once."""
    print(f"flood: {options.files} files before the start; then as many while the daemon is stopped")
    on_fresh_root(lambda daemon: flood_before_start(daemon, options.files), options.backend)
    on_fresh_root(lambda daemon: flood_while_running(daemon, options.files), options.backend)


def bits(options: argparse.Namespace) -> None:
    """Roots on every store, each damaged in one place: most by one flipped bit, the others in every other way."""
    from tests.daemon.damage import BACKENDS, DAMAGES, build, targets, try_one

    print(f"bits: {options.runs} damaged roots, seed {options.seed}")
    logging.disable(logging.CRITICAL)  # it complains of each
    chance, tried = random.Random(options.seed), Counter[str]()
    folder = Path(tempfile.mkdtemp(prefix="postroom-campaign-"))
    victims = {
        backend: (
            build(folder / backend, backend, with_log=True),
            build(folder / f"other-{backend}", backend, "other's", with_log=True),
        )
        for backend in BACKENDS
        if options.backend in ("", backend)
    }
    for number in range(options.runs):
        backend, without_store = chance.choice([*victims]), chance.random() < 0.3
        kinds = [kind for kind in targets(victims[backend][0]) if not without_store or "segment" in kind]
        kind, how = chance.choice(kinds), chance.choice(["a bit flipped", chance.choice([*DAMAGES])])
        what = f"{backend}, {kind}, {how}, seed {number}" + (", without its store" if without_store else "")
        try:
            outcome = try_one(*victims[backend], folder / "scratch", kind, how, number, without_store)
        except BaseException:
            print(f"{what}; what is left of it: {folder}", file=sys.stderr)
            raise
        tried[how] += 1
        tried["a message lost, and told"] += outcome.degraded
        tried["a body lost, and told"] += bool(outcome.lost_bodies)
        tried["refused, as documented"] += not outcome.started
        print(f"\r{number + 1} held", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    shutil.rmtree(folder)
    for name, count in tried.most_common():
        print(f"{count:8}  {name}")


def damage(options: argparse.Namespace) -> None:
    """Roots on every store, or on one, each with one to four random damages at once: nothing is lost in silence."""
    from tests.daemon.damage import BACKENDS
    from tests.daemon.random_damage import build, damage_one

    print(f"damage: {options.runs} damaged roots a store, from seed {options.first} on")
    logging.disable(logging.CRITICAL)  # it complains of each
    folder = Path(tempfile.mkdtemp(prefix="postroom-campaign-"))
    failed = 0
    for backend in [name for name in BACKENDS if options.backend in ("", name)]:
        victims, seen = build(folder / backend, backend), Counter[str]()
        for seed in range(options.first, options.first + options.runs):
            try:
                outcome = damage_one(victims, folder / "scratch", seed)
            except AssertionError as error:
                print(f"{backend}, {error}")
                seen["FAILED"] += 1
                if not options.go_on:
                    raise
                continue
            seen["held, and health degraded" if outcome.degraded else "held, and health ok"] += 1
            seen["held, with dead letters for lost bodies"] += bool(outcome.lost_bodies)
        failed += seen["FAILED"]
        print(backend, *(f"{count:8}  {name}" for name, count in seen.most_common()), sep="\n")
    shutil.rmtree(folder)
    if failed:
        sys.exit(f"{failed} failed")


def crash(options: argparse.Namespace) -> None:
    """File and system calls that fail or kill, one in each run."""
    from tests.crash.campaign import run_campaign

    print(f"crash: every {options.every}. file call of each life, every {options.processes_every}. system call")
    print(run_campaign(options.every, options.processes_every, options.minutes, options.backend))


def mutations(options: argparse.Namespace) -> None:
    """Requests that are nearly right, made by Hypothesis: each is taken away, and the daemon outlives them all."""
    print(f"mutations: {options.files} files, seed {options.seed}")
    from tests.wire.mutations import send_mutated

    total = Counter[str]()
    for number in range(-(-options.files // 50_000)):

        def run(daemon: Daemon, number: int = number) -> Counter[str]:
            daemon.start()
            return send_mutated(daemon, min(50_000, options.files), options.seed * 1000 + number)

        total += on_fresh_root(run, options.backend, flags=("--traffic-enabled", "false", "--log-level", "error"))
        print(f"\r{total['sent']} sent", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for name, count in total.most_common():
        print(f"{count:8}  {name}")


def frames(options: argparse.Namespace) -> None:
    """Frames of the lane that are nearly right: the daemon outlives them all, and forgets them."""
    from tests.wire.frame_mutations import send_mutated_frames

    print(f"frames: {options.frames} frames, seed {options.seed}")

    def run(daemon: Daemon) -> Counter[str]:
        daemon.start()
        return send_mutated_frames(daemon, options.frames, options.seed)

    for name, count in on_fresh_root(run, options.backend).most_common():
        print(f"{count:8}  {name}")


def swaps(options: argparse.Namespace) -> None:
    """A hostile user swaps what its names in requests/ show; needs root, which can be several users."""
    from tests.wire.swaps import run_swaps
    from tests.wire.users import share

    print(f"swaps: {options.swaps} swaps, seed {options.seed}")

    def run(daemon: Daemon) -> Counter[str]:
        share(daemon)
        daemon.start()
        return run_swaps(daemon, options.swaps, options.seed)

    for name, count in on_fresh_root(run, options.backend, flags=("--limits-user-share-requests", "3")).most_common():
        print(f"{count:8}  {name}")


def on_fresh_root(
    run: Callable[[Daemon], T],
    backend: str,
    audited: bool = True,
    flags: tuple[str, ...] = (),
    config: dict[str, Any] | None = None,
) -> T:
    """Run on a daemon of its own and print the outcome, which is returned; what it left is kept if it fails."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-campaign-"))
    folder.chmod(0o711)  # for those who act as other users
    daemon = Daemon(folder / "root", *flags, backend=backend, config=config)
    began = time.monotonic()
    try:
        outcome = run(daemon)
        print(outcome)
        daemon.kill()
        if audited:
            audit(daemon.events())
            audit_bodies(daemon)
            assert "Traceback" not in daemon.log(), daemon.log()
    except BaseException:
        daemon.kill()
        print(daemon.log(), f"what is left of it: {folder}", sep="\n", file=sys.stderr)
        raise
    shutil.rmtree(folder)
    print(f"held, {time.monotonic() - began:.1f} s in all")
    return outcome


def main() -> None:
    """Read the command line and run one campaign."""
    more = "scripts/campaign pipeline kills runs of the pipeline; it has a --help of its own, and needs Java."
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__, epilog=more)
    commands = parser.add_subparsers(required=True)
    for run, options in (
        (chaos, {"messages": 20_000, "kills": 10, "seed": 1}),
        (cluster, {"faults": 200, "seed": 1}),
        (gateway, {"messages": 20_000, "kills": 30, "seed": 1}),
        (websocket, {"messages": 20_000, "kills": 60, "seed": 1}),
        (simplemq, {"messages": 20_000, "kills": 60, "seed": 1}),
        (smss, {"kills": 10, "seed": 1}),
        (flood, {"files": 20_000}),
        (bits, {"runs": 10_000, "seed": 1}),
        (damage, {"runs": 180, "first": 1, "go_on": 0}),
        (mutations, {"files": 1_000_000, "seed": 1}),
        (frames, {"frames": 50_000, "seed": 1}),
        (swaps, {"swaps": 100_000, "seed": 1}),
        (crash, {"every": 5, "processes_every": 9, "minutes": 60}),
    ):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        for name, default in options.items():
            command.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default {default}")
        command.add_argument("--backend", default="", help="the store; default: what POSTROOM_BACKEND says, or sqlite")
        command.set_defaults(run=run)
    chosen = parser.parse_args()
    print(
        f"{time.strftime('%Y-%m-%d %H:%M')}, {platform.machine()}, {os.cpu_count()} cores, load"
        f" {os.getloadavg()[0]:.1f}, {platform.system()} {platform.release()}, Python {platform.python_version()},"
        f" files in {tempfile.gettempdir()}"
    )
    chosen.run(chosen)


if __name__ == "__main__":
    main()
