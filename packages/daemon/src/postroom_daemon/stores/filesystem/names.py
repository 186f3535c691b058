"""Names on disk: a queue's directory, and a message's file, whose name holds every fact of the message that is short.

``<letter><order>-<seq>-<id>~v<event>[~<tag><value>...].json``. The letter shows the state, the order sorts in the order
of delivery (a message that returned to the end has its place in a tag), ``v`` is the last event that the name shows. A
rename changes all of it at once, or nothing, so each file by itself shows how far it is. Values that are long, or do
not fit, are in a line inside the file (``content.py``): ``f`` names that line.

Format 4; names of earlier formats have fewer tags. A fact that a message does not have has no tag. To change the
format: raise ``content.FORMAT``, read all, and test with files written by the version before.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from postroom_common.protocol import NO_PRIORITY, State, message_key

from ...model import records
from ...model.records import Entry, message_id_of

NAME_BYTES_LIMIT: Final = 255
#: Longest directory name of a queue that is not hashed.
QUEUE_DIR_BYTES_LIMIT: Final = 200
#: How a file's name identifies its message: by the id as it is, or by ``+`` and a digest; see ``id_of``.
ID_PATTERN: Final = "[A-Za-z0-9+][A-Za-z0-9._-]{0,39}"
TEMPORARY_SUFFIX: Final = ".tmp"

READY, DELAYED, INFLIGHT, DEAD, DONE, HELD = "pduxah"
LETTERS: Final = {
    State.READY: READY,
    State.DELAYED: DELAYED,
    State.GATHERING: DELAYED,
    State.DRAFTING: HELD,
    State.INFLIGHT: INFLIGHT,
    State.DEAD: DEAD,
    State.HELD: HELD,
    State.DONE: DONE,
}
_STATES: Final = {letter: state for state, letter in LETTERS.items() if state not in (State.GATHERING, State.DRAFTING)}

#: Strict: what a hand has written that no version of this program writes is no message's name.
NAME: Final = re.compile(
    r"(?=p[0-9a-f]{8}-|pg0{7}-|[duxah][0-9]{15})([pduxah])([0-9a-f]{8}|g0{7}|[0-9]{15,19})"
    rf"-([0-9]{{15,19}})-({ID_PATTERN})"
    r"~v([0-9]{1,19})((?:~(?:[wbapduxlnfsegyhjqU]-?[0-9]{1,19}|[kctromizA][A-Za-z0-9._%-]+|[TOMRQGKPDN]))*)\.json"
)
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9._-]+")
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_HIGHEST_ID: Final = 2**63 - 1
HIGHEST_PRIORITY: Final = 2**31 - 1
#: The order part of the name of a ready message without a priority: it sorts behind all others.
_NO_PRIORITY: Final = "g0000000"
#: Numbers and texts of an entry by their tags. What is 0 or empty has no tag.
_NUMBERS: Final = {
    "w": "created_wall",
    "b": "created",
    "a": "attempt",
    "p": "priority",
    "d": "due",
    "u": "lease_until",
    "l": "leased_at",
    "x": "dead_at",
    "n": "failures",
    "s": "size",
    "e": "expires",
    "g": "fallback",
    "y": "due_wall",
    "h": "retry_limit",
    "j": "returned_seq",
    "q": "parts",
    "U": "unset",
}
_TEXTS: Final = {
    "k": "lease_id",
    "c": "consumer_id",
    "t": "target",
    "r": "reason",
    "o": "order_key",
    "m": "claim",
    "i": "holder_uid",
    "z": "publisher_uid",
    "A": "name",
}
#: Tags that say that a text is inside the file: the start must know, or cannot do without it.
INSIDE: Final = {"target": "T", "order_key": "O", "claim": "M", "reason": "R", "name": "N"}
#: The tag of a message that was born in another queue than the one in whose directory it lies.
MOVED: Final = "Q"
#: The tag of a delayed message that gathers parts.
GATHERING: Final = "G"
#: The tag of a message that is done and stays: without it, a file of the letter ``DONE`` is one of a message that is
#: gone.
KEPT: Final = "K"
#: The tag of a message whose lease is in its first phase.
ORDERED: Final = "P"
#: The tag of a draft, whose letter is that of a message on hold.
DRAFTING: Final = "D"
#: The fact in the order part of a name, by its letter: it needs no tag.
_ORDERS: Final = {
    READY: "priority",
    DELAYED: "due",
    INFLIGHT: "lease_until",
    DEAD: "dead_at",
    HELD: "seq",
    DONE: "dead_at",
}
#: What gives way when the name is too long, in this order.
_GIVES_WAY: Final = (
    "name", "holder_uid", "publisher_uid", "consumer_id", "claim", "target", "order_key", "reason", "lease_id",
)  # fmt: skip


class FileName(NamedTuple):
    """A message file's name, taken apart. ``inside`` is the id of the line that holds further facts, 0 for none."""

    letter: str
    order: str
    seq: int
    id: str
    version: int
    tags: dict[str, str]

    @property
    def inside(self) -> int:
        return int(self.tags.get("f", "0"))

    @property
    def state(self) -> State:
        """The state of the message. Not for one that is gone."""
        if GATHERING in self.tags:
            return State.GATHERING
        return State.DRAFTING if DRAFTING in self.tags else _STATES[self.letter]

    @property
    def is_gone(self) -> bool:
        """Whether the message is gone: the file stays until that is durable."""
        return self.letter == DONE and KEPT not in self.tags

    @property
    def key_is_inside(self) -> bool:
        return self.id[0] == "+"

    def is_inside(self, fact: str) -> bool:
        """Whether one of the texts of ``INSIDE`` is in the file."""
        return INSIDE[fact] in self.tags

    @property
    def is_moved(self) -> bool:
        return MOVED in self.tags

    @property
    def next_expiry(self) -> int:
        """The entry's ``next_expiry``, from the name alone."""
        expires, fallback = int(self.tags.get("e", "0")), int(self.tags.get("g", "0"))
        if fallback and ("t" in self.tags or "T" in self.tags):
            return min(fallback, expires) if expires else fallback
        return expires


def queue_directory(queue: str, reserved: str) -> str:
    """The directory of a queue. ``reserved`` is a name that no queue gets."""
    name = quote(queue, safe="", errors="surrogatepass").replace("~", "%7E")
    if name[0] == "." or name == reserved:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > QUEUE_DIR_BYTES_LIMIT:
        digest = hashlib.blake2b(queue.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        name = f"{name[:120]}~{digest}"
    return name


def queue_of_directory(name: str) -> str | None:
    """The queue of a directory; None when the name is hashed, or none of ours."""
    if "~" in name:  # it was cut, perhaps in the midst of a character
        return None
    try:
        queue = unquote(name, errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return queue if name in (queue_directory(queue, ""), queue_directory(queue, queue)) else None


def read_name(name: str) -> FileName | None:
    """A file's name taken apart; None when it is no message's."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    letter, order, seq, id_, version, tags = match.groups()
    if int(version) > _HIGHEST_ID:  # all events would be numbered behind it
        return None
    if "%" in tags:
        try:
            unquote(tags, errors="surrogatepass")
        except UnicodeDecodeError:
            return None
    return FileName(letter, order, int(seq), id_, int(version), {tag[0]: tag[1:] for tag in tags.split("~")[1:]})


def stored_by(name: str) -> tuple[str, int, int] | None:
    """Who has published a message ('': nobody is known), its seq and its size, from its file's name; None if the file
    may have to be read."""
    head, *tags = name.removesuffix(".json").split("~")
    values = {tag[0]: tag[1:] for tag in tags}
    if "f" in values:
        return None
    return unquote(values.get("z", ""), errors="surrogatepass"), int(head.split("-", 2)[1]), int(values.get("s", "0"))


def priority_of(order: str) -> int:
    """The priority in the order part of a ready message's name."""
    return NO_PRIORITY if order == _NO_PRIORITY else HIGHEST_PRIORITY - int(order, 16)


def queue_of_key(key: str) -> str:
    """The queue that a message was born in, if its key contains it."""
    return key.partition(":")[2].rpartition(":")[0]


def id_of(key: str, queue: str) -> str:
    """The part of a file's name that identifies its message; ``+`` and a digest if the key does not fit there."""
    id_ = message_id_of(key)
    if _PLAIN_ID.fullmatch(id_) and key == message_key(queue, id_):
        return id_
    return "+" + hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def write_name(
    entry: Entry, version: int, inside: int, history: list[Any] | None, moved: bool = False
) -> tuple[str, dict[str, Any]]:
    """The name of an entry's file, and the facts that must stand in the file's line ``inside``: what is too long, and
    always its history, and its phase unless that is the first one of a lease. ``moved``: its queue is another than the
    one that it was born in."""
    letter = LETTERS[entry.state]
    ordered_by = _ORDERS[letter]
    if letter != READY:
        order = f"{getattr(entry, ordered_by):015d}"
    else:
        order = _NO_PRIORITY if entry.priority == NO_PRIORITY else f"{HIGHEST_PRIORITY - entry.priority:08x}"
    head = f"{letter}{order}-{entry.seq:015d}-{id_of(entry.key, entry.queue)}~v{version}"
    if entry.state is State.GATHERING:
        head += f"~{GATHERING}"
    elif entry.state is State.DONE:
        head += f"~{KEPT}"
    elif entry.state is State.DRAFTING:
        head += f"~{DRAFTING}"
    if entry.phase == records.ORDERED:
        head += f"~{ORDERED}"
    for tag, fact in _NUMBERS.items():
        number = getattr(entry, fact)
        if number and fact != ordered_by:
            head += f"~{tag}{number}"
    facts: dict[str, Any] = {"history": history} if history else {}
    if entry.phase and entry.phase != records.ORDERED:
        facts["phase"] = entry.phase
    if moved:
        facts["queue"] = entry.queue
    texts = {fact: f"~{tag}{_escape(value)}" for tag, fact in _TEXTS.items() if (value := getattr(entry, fact))}
    room = NAME_BYTES_LIMIT - len(head) - len(f"~f{inside}~T~O~M~R~Q.json") - (len("~N") if entry.name else 0)
    for fact in _GIVES_WAY:
        if sum(map(len, texts.values())) <= room:
            break
        if texts.pop(fact, ""):
            facts[fact] = getattr(entry, fact)
    tail = f"~f{inside}" if facts else ""
    tail += "".join(f"~{tag}" for fact, tag in INSIDE.items() if fact in facts)
    return f"{head}{''.join(texts.values())}{tail}{f'~{MOVED}' if moved else ''}.json", facts


def done_name(name: FileName, version: int) -> str:
    """The name of a message's file once the message is gone, until that is durable."""
    moved = f"~f{name.inside}~{MOVED}" if name.is_moved else ""
    return f"{DONE}{version:015d}-{name.seq:015d}-{name.id}~v{version}{moved}.json"


def read_entry(name: FileName, key: str, queue: str, facts: dict[str, Any]) -> Entry:
    """The entry that a name and the facts inside its file describe. Not for one that is gone."""
    entry = Entry(key, queue, name.state, 0, name.seq, 0, 0)
    order = priority_of(name.order) if name.letter == READY else int(name.order)
    setattr(entry, _ORDERS[name.letter], order)
    for tag, value in name.tags.items():
        if tag in _NUMBERS:
            setattr(entry, _NUMBERS[tag], int(value))
        elif tag in _TEXTS:
            setattr(entry, _TEXTS[tag], unquote(value, errors="surrogatepass"))
        elif tag == ORDERED:
            entry.phase = records.ORDERED
    for fact, value in facts.items():
        if fact != "history":
            setattr(entry, fact, value)
    return entry


def _escape(text: str) -> str:
    if _PLAIN_TEXT.fullmatch(text):
        return text
    return quote(text, safe="", errors="surrogatepass").replace("~", "%7E")
