"""Questions to the nodes of a cluster, over NATS: their status, and the request to lead."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from .errors import StreamUnavailable
from .node import Node

#: How long (s) answers of nodes are waited for.
ANSWER_S: Final = 1.0


def subject_of(cluster: str, node: str = "") -> str:
    """The subject of questions to a node; to all nodes without a name."""
    return f"postroom.{cluster}.node.{node}" if node else f"postroom.{cluster}.nodes"


async def answer_questions(connection: Client, cluster: str, node: Node) -> None:
    """Answer questions to this node and to all nodes, from now on."""

    async def ask_to_yield(leader: str) -> None:
        with suppress(nats.errors.Error):  # then it leads on, and this node's append is refused
            await connection.publish(subject_of(cluster, leader), b"yield")

    node.ask_to_yield = ask_to_yield

    async def answer(message: Msg) -> None:
        if message.data == b"promote" and (leader := node.promote()):
            await ask_to_yield(leader)
        elif message.data == b"yield":
            node.is_yielding = True
        if message.reply:
            await connection.publish(message.reply, json.dumps(node.status()).encode())

    for subject in (subject_of(cluster), subject_of(cluster, node.name)):
        await connection.subscribe(subject, cb=answer)


async def ask_all(connection: Client, cluster: str) -> list[dict[str, Any]]:
    """The status of all nodes that answer, by name. Raises ``StreamUnavailable``."""
    inbox = connection.new_inbox()
    answers = []
    try:
        subscription = await connection.subscribe(inbox)
        await connection.publish(subject_of(cluster), b"status", reply=inbox)
        async with asyncio.timeout(ANSWER_S):
            while True:
                message = await subscription.next_msg(timeout=ANSWER_S)
                if message.data:
                    answers.append(json.loads(message.data))
    except TimeoutError:
        pass  # these are all that are there
    except (nats.errors.Error, ValueError) as error:
        raise StreamUnavailable(f"the nodes cannot be asked: {error}") from None
    return sorted(answers, key=lambda one: str(one["node"]))


async def promote(connection: Client, cluster: str, node: str) -> dict[str, Any]:
    """Ask a node to lead as soon as it has all groups; return its status. Raises ``StreamUnavailable``."""
    try:
        message = await connection.request(subject_of(cluster, node), b"promote", timeout=ANSWER_S)
        status: dict[str, Any] = json.loads(message.data)
    except (nats.errors.Error, TimeoutError, ValueError):
        raise StreamUnavailable(f"node {node} does not answer: is its postroom-cluster running?") from None
    return status
