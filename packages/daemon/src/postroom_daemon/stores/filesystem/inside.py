"""What the content of a message's file tells where its name does not: its key, its queue, facts without room in it."""

from __future__ import annotations

from typing import Any

from ...platform.files import LOST_ERRNOS
from . import content as fs_content
from .names import FileName, queue_of_key
from .tree import Tree


def facts_inside(tree: Tree, directory: str, place: str, name: FileName) -> tuple[int, dict[str, Any]]:
    """The line inside a file that its name tells of, or an older one if that is lost, and what counts of it."""
    content = read_or_nothing(tree, directory, place)
    line, facts = fs_content.facts_of(content, name.inside)
    return line, fs_content.told_inside(name, content, line, facts)


def read_or_nothing(tree: Tree, directory: str, place: str) -> bytes:
    """What a file holds; nothing when it cannot be read."""
    try:
        return tree.read(directory, place)
    except OSError as error:
        if error.errno not in LOST_ERRNOS:
            raise
        return b""


def message_of(tree: Tree, directory: str, place: str, name: FileName, there: str) -> tuple[str, str]:
    """The key and the queue that a file tells; '' when it is not intact. ``there`` is the queue in whose directory it
    lies: one that has moved, and has lost the line that tells its queue, belongs where it is."""
    content = read_or_nothing(tree, directory, place)
    head = fs_content.head_of(content) or {}
    key, queue = head.get("key"), head.get("queue")
    if type(key) is str and not name.key_is_inside:
        queue = queue_of_key(key)  # the first line may have been written elsewhere, before the message came home
    elif name.is_moved:
        line, facts = fs_content.facts_of(content, name.inside)
        queue = facts.get("queue") if line == name.inside else there
    return (key, queue) if type(key) is type(queue) is str and key and queue else ("", "")
