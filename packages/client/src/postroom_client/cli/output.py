"""Text for people: short, aligned, and without control characters for the terminal."""

import json
import re
import sys
import time

from .._compat import PY2, text_type
from .table import fill, lay_out, terminal_width, width_of

#: Control characters, and characters that change the direction of text or break lines.
_UNSAFE = re.compile(u"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SHORT = {u"\n": u"\\n", u"\r": u"\\r", u"\t": u"\\t"}


def escape(text):
    """Return ``text`` with control characters shown as escapes."""
    return _UNSAFE.sub(_escape_one, text)


def _escape_one(match):
    char = match.group()
    return _SHORT.get(char) or (u"\\x%02x" if ord(char) < 256 else u"\\u%04x") % ord(char)


def write(text, stream=None):
    """Print text and a newline. Characters that the locale cannot encode are shown as escapes."""
    stream = sys.stdout if stream is None else stream
    encoding = getattr(stream, "encoding", None) or "utf-8"
    write_bytes((text + u"\n").encode(encoding, "backslashreplace"), stream)


def write_bytes(data, stream=None):
    """Write bytes unchanged, and flush."""
    stream = sys.stdout if stream is None else stream
    binary = getattr(stream, "buffer", None)
    if binary is not None:
        stream.flush()
        binary.write(data)
        binary.flush()
    else:
        stream.write(data if PY2 else data.decode(stream.encoding or "utf-8"))
        stream.flush()


def cell(value):
    """Return a value as a cell: text unchanged, or escaped on a terminal; other values as JSON."""
    if value is None:
        return u"-"
    if isinstance(value, (text_type, str)):
        text = value if isinstance(value, text_type) else value.decode("utf-8", "replace")
    else:
        text = json_text(value)
    return escape(text) if sys.stdout.isatty() else text


def json_text(value):
    """Return ``value`` as compact JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text if isinstance(text, text_type) else text.decode("utf-8")


def quote(text):
    """Return ``text`` quoted as one word of a shell."""
    if re.match(r"[\w@%+=:,./-]+\Z", text):
        return text
    return u"'" + text.replace(u"'", u"'\\''") + u"'"


def pairs(rows):
    """Return lines of names and values, the values aligned."""
    width = max([width_of(name) for name, _ in rows] or [0])
    return u"\n".join((fill(name, width) + u"  " + value).rstrip() for name, value in rows)


def table(headers, rows):
    """Return a table, with numbers aligned to the right. On a terminal it fits: see ``lay_out``."""
    return lay_out(headers, rows, terminal_width())


def moment(unix_ms):
    """Return wall time as local date and time, to the second."""
    if not isinstance(unix_ms, (int, float)) or isinstance(unix_ms, bool):
        return u"-"
    try:
        return u"%s" % time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ms / 1000.0))
    except (ValueError, OverflowError, OSError):
        return u"%d ms" % unix_ms


def duration(ms):
    """Return a duration in a fitting unit."""
    if not isinstance(ms, (int, float)) or isinstance(ms, bool):
        return u"-"
    for limit_ms, unit_ms, unit in ((1000, 1, u"ms"), (120000, 1000.0, u"s"), (7200000, 60000.0, u"min")):
        if ms < limit_ms:
            return u"%.3g %s" % (ms / unit_ms, unit)
    return u"%.3g h" % (ms / 3600000.0)


def size(count_bytes):
    """Return a number of bytes in a fitting unit."""
    if not isinstance(count_bytes, (int, float)) or isinstance(count_bytes, bool):
        return u"-"
    for unit_bytes, unit in ((10.0**12, u"TB"), (10.0**9, u"GB"), (10.0**6, u"MB"), (10.0**3, u"kB")):
        if count_bytes >= unit_bytes:
            return u"%.1f %s" % (count_bytes / unit_bytes, unit)
    return u"%d bytes" % count_bytes


def short_duration(ms):
    """Return a duration in at most six characters."""
    if not isinstance(ms, (int, float)) or isinstance(ms, bool):
        return u"-"
    for limit_ms, unit_ms, unit in ((1000, 1, u"ms"), (120000, 1000, u"s"), (7200000, 60000, u"m")):
        if ms < limit_ms:
            return u"%d%s" % (ms // unit_ms, unit)
    return u"%dh" % (ms // 3600000) if ms < 172800000 else u"%dd" % (ms // 86400000)


def remaining(data, name, answer):
    """Return the milliseconds from an answer's engine time to ``data[name]``; None if one of them is missing."""
    end_ms, now_ms = data.get(name), answer.get("engineNowMs")
    return end_ms - now_ms if isinstance(end_ms, int) and isinstance(now_ms, int) else None


def flatten(value, prefix=u""):
    """Return the leaves of nested objects as (dotted name, value)."""
    rows = []
    for name in sorted(value):
        item = value[name]
        if isinstance(item, dict) and item:
            rows += flatten(item, prefix + name + u".")
        else:
            rows.append((prefix + name, item))
    return rows
