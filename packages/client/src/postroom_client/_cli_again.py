"""The command line that brings the next page of a list."""

import json

from ._cli_output import cell, quote
from ._cli_words import option_names
from ._compat import text_type
from ._protocol import FIELDS

_COMMON = ("ipc_root", "client_id", "timeout")


def next_page(options, word, payload, data):
    """What is printed below a page that is not the last one: the same command, behind it; empty otherwise."""
    following = data.get("next")
    if not following or options.command not in _LISTS:
        return u""
    words = [u"postroom"]
    for name in _COMMON:
        if getattr(options, name, None) is not None:
            words += _option(u"--" + name.replace("_", "-"), getattr(options, name))
    words.append(u"%s" % word)
    for field in FIELDS[options.command]:
        name, kind = field[0], field[2]
        value = following if name == "after" else payload.get(name)
        if value is None or value is False:
            continue
        option = u"%s" % option_names(name)[0]
        words += [option] if kind == "boolean" else _option(option, value)
    return u"\nmore: " + u" ".join(words)


_LISTS = ("list_queues", "list_dlq", "browse", "list_inflight", "list_consumers", "list_schedules")


def _option(name, value):
    if isinstance(value, dict):
        text = json.dumps(value, sort_keys=True)  # plain ASCII: nothing of it has to be escaped for a terminal
        text = text if isinstance(text, text_type) else text.decode("ascii")
    else:
        text = cell(value)
    # Behind a blank, what begins with a dash would be an option of its own.
    return [name + u"=" + quote(text)] if text.startswith(u"-") else [name, quote(text)]
