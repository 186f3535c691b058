"""Where the payload files of the hybrid store lie, and what their names tell: ``<queue>/<shard>/<seq>-<id>.json``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from ..filesystem.names import ID_PATTERN, id_of, queue_directory

#: Publish numbers whose files share a directory.
SHARD_SPAN: Final = 10_000
_SHARD: Final = re.compile(r"[0-9]{8,15}")
_NAME: Final = re.compile(rf"([0-9]{{15,19}})-({ID_PATTERN})\.json")


class PayloadName(NamedTuple):
    """The path of a payload file, taken apart."""

    directory: str
    shard: str
    name: str

    @classmethod
    def read(cls, path: str) -> PayloadName:
        """Take a path apart, whether or not it is a payload file's."""
        directory, _, rest = path.partition("/")
        shard, _, name = rest.rpartition("/")
        return cls(directory, shard, name)

    @property
    def seq(self) -> int:
        """The publish number that the name tells; 0 when it is no payload file's."""
        match = _NAME.fullmatch(self.name)
        return int(match[1]) if match else 0

    @property
    def id(self) -> str:
        """The id that the name tells, as ``fs_names.id_of`` writes it."""
        match = _NAME.fullmatch(self.name)
        return match[2] if match else ""

    def __str__(self) -> str:
        return f"{self.directory}/{self.shard}/{self.name}"


@lru_cache(maxsize=1024)
def directory_of(queue: str) -> str:
    """The directory below the root in which a queue's bodies lie."""
    return queue_directory(queue, "")


def shard_of(seq: int) -> str:
    """The directory below its queue's in which a message's file lies."""
    return f"{seq // SHARD_SPAN:08d}"


def payload_path(seq: int, queue: str, key: str) -> str:
    """Where the body of a message lies, from what its event says: ``queue`` is the one that it was born in."""
    return f"{directory_of(queue)}/{shard_of(seq)}/{seq:015d}-{id_of(key, queue)}.json"


def is_shard_name(name: str) -> bool:
    """Whether a directory below a queue's may be that of a shard."""
    return _SHARD.fullmatch(name) is not None
