"""``postroom log pipe``: to which names a queue or a log passes everything on."""

from .._compat import text_type
from ..errors import QueueNotFound
from .output import cell, pairs
from .payload import UsageError


def add_options(parser):
    """Add the arguments of ``log pipe``."""
    add = parser.add_argument
    add("queue", metavar="FROM", help="the queue or log that passes everything on")
    add("to", nargs="*", metavar="TO", help="a target to add: a log, or if FROM is a log, a queue")
    remove = "remove this target, but not the reader pipe:NAME of a log; may be repeated"
    add("--remove", action="append", default=[], metavar="NAME", help=remove)


def change(call, options):
    """Add and remove targets with ``call(command, payload)``. Return the data that the command prints."""
    queue = _name(options.queue)
    try:
        before = call("get_policy", {"queue": queue})["policy"].get("pipe", {}).get("to", [])
    except QueueNotFound:
        if not options.to:
            raise
        before = []  # set_policy creates it
    removed = [_name(one) for one in options.remove]
    to = [one for one in before if one not in removed]
    for name in map(_name, options.to):
        if name not in to:
            to.append(name)
    if to != before:
        call("set_policy", {"queue": queue, "policy": {"pipe": {"to": to}}})
    return {"queue": queue, "to": to}


def describe(data):
    """Return the text of what ``change`` returned."""
    return pairs([(cell(data["queue"]), u"-> " + u", ".join(map(cell, data["to"])) if data["to"] else u"no pipe")])


def _name(argument):
    try:
        return argument if isinstance(argument, text_type) else argument.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("a name is not UTF-8")
