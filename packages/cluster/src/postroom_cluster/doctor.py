"""What is wrong with the servers and the stream, for the promises of a cluster."""

from __future__ import annotations

import json
import time
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.js import api

from .control import ask_all
from .stream import Stream

#: Bytes of a group beside its largest message.
_SPARE_BYTES: Final = 2**20
#: The daemon's default of ``limits.groupBytes``.
_GROUP_BYTES: Final = 8 * 2**20
#: Difference (ms) of wall clocks that is worth a word.
_CLOCKS_MS: Final = 1000
_OLDEST: Final = (2, 9)
_UNKNOWN_SYNC: Final = (
    "only a user of the servers' system account can read it. Check that the configuration of each server has"
    " jetstream { sync_interval: always }: without it, a power cut of two servers can lose what was acknowledged. If"
    " all have it, add --sync-always"
)


class Finding(NamedTuple):
    """One thing checked. ``level`` is ``ok``, ``warning`` (a promise is weaker) or ``error`` (one is broken)."""

    level: str
    name: str
    text: str


async def examine(
    connection: Client, stream: Stream, cluster: str, group_bytes: int = _GROUP_BYTES, sync_always: bool = False
) -> list[Finding]:
    """All findings about servers, stream and nodes. ``sync_always``: the operator has checked ``sync_interval``. Raises
    ``StreamUnavailable`` if there is no stream."""
    info = await stream.info()
    findings = [*judge_stream(info), *judge_server(connection, group_bytes)]
    asked_ms = int(time.time() * 1000)  # they answer at once, and ask_all waits for the last of them
    findings += judge_nodes(await ask_all(connection, cluster), asked_ms)
    findings.append(await _sync_interval(connection, sync_always))
    return findings


def judge_stream(info: api.StreamInfo) -> list[Finding]:
    """Replicas, storage and limits of the stream."""
    config, replicas = info.config, info.config.num_replicas or 1
    made = []
    if replicas >= 3 and replicas % 2:
        made.append(Finding("ok", "replicas", f"{replicas}: the loss of {replicas // 2} is survived"))
    else:
        made.append(
            Finding("error", "replicas", f"{replicas}: what was acknowledged can be lost with one server; use 3")
        )
    if config.storage != api.StorageType.FILE:
        made.append(Finding("error", "storage", "memory: a restart of the servers loses the journal; use file"))
    if config.retention not in (None, api.RetentionPolicy.LIMITS):
        made.append(
            Finding("error", "retention", f"{config.retention}: messages vanish when they are read; use limits")
        )
    if config.discard == api.DiscardPolicy.NEW and (config.max_bytes or -1) > 0:
        made.append(
            Finding("error", "discard", "new: a full stream refuses every group, so that nothing is acknowledged")
        )
    if config.max_age:
        made.append(
            Finding(
                "warning", "max_age", f"{config.max_age:g} s: a cluster that is off for longer must be created again"
            )
        )
    if (config.max_msgs or -1) > 0 or (config.max_msgs_per_subject or -1) > 0:
        made.append(Finding("warning", "max_msgs", "is set: limit the stream by bytes, because groups differ in size"))
    for peer in (info.cluster.replicas if info.cluster else None) or []:
        if peer.offline or not peer.current:
            made.append(Finding("warning", "replica", f"{peer.name} is {'offline' if peer.offline else 'behind'}"))
    servers = {peer.name for peer in (info.cluster.replicas if info.cluster else None) or []}
    if len(servers) + 1 < replicas:
        made.append(Finding("error", "servers", f"{replicas} replicas are on {len(servers) + 1} servers"))
    return made


def judge_server(connection: Client, group_bytes: int) -> list[Finding]:
    """Version and limits of the server that this connection has."""
    version, limit = connection.connected_server_version, connection.max_payload
    made = []
    if (version.major, version.minor) < _OLDEST:
        made.append(Finding("error", "version", f"{version.major}.{version.minor} is too old; use 2.9 or later"))
    needed = group_bytes + _SPARE_BYTES
    if limit < needed:
        made.append(
            Finding(
                "error",
                "max_payload",
                f"{limit:,} bytes: a group of messages may have {needed:,}; raise it on all servers",
            )
        )
    else:
        made.append(Finding("ok", "max_payload", f"{limit:,} bytes"))
    return made


def judge_nodes(nodes: list[dict[str, Any]], wall_ms: int) -> list[Finding]:
    """Leadership, problems and clocks of the nodes that answer."""
    made = []
    leaders = [one["node"] for one in nodes if one["role"] == "leading"]
    if len(leaders) == 1:
        made.append(Finding("ok", "leader", leaders[0]))
    elif leaders:
        made.append(
            Finding("warning", "leader", f"{', '.join(leaders)}: all but one have not noticed yet that they lost")
        )
    else:
        made.append(Finding("error", "leader", "none: no request that changes anything is answered"))
    names = [one["node"] for one in nodes]
    for name in sorted({name for name in names if names.count(name) > 1}):
        made.append(Finding("error", "node", f"{name}: several nodes have this name"))
    if len(nodes) < 2:
        made.append(Finding("warning", "nodes", f"{len(nodes)} answer: nobody can take over"))
    for one in nodes:
        if one["problem"]:
            made.append(Finding("warning", "node", f"{one['node']}: {one['problem']}"))
        if abs(one["wallMs"] - wall_ms) > _CLOCKS_MS:
            made.append(
                Finding("warning", "clock", f"{one['node']}: differs by {(one['wallMs'] - wall_ms) / 1000:+.1f} s")
            )
    return made


async def _sync_interval(connection: Client, is_confirmed: bool) -> Finding:
    """``sync_interval`` of the servers. Only a user of the system account may ask for it."""
    name = "sync_interval"
    try:
        answer = await connection.request("$SYS.REQ.SERVER.PING.JSZ", b'{"config":true}', timeout=1.0)
        config = json.loads(answer.data)["data"]["config"]
    except (nats.errors.Error, TimeoutError, KeyError, ValueError):
        if is_confirmed:
            return Finding("ok", name, "always, as --sync-always confirms")
        return Finding("warning", name, _UNKNOWN_SYNC)
    if config.get("sync_always"):
        return Finding("ok", name, "always")
    return Finding("error", name, "not always: a power cut of two servers can lose what was acknowledged")
