"""Tables that fit the terminal. In a file or a pipe they are complete."""

import fcntl
import os
import struct
import sys
import termios
import unicodedata

#: Widths of a text column: the first column is narrowed once the others have this one, and no column gets narrower than
#: the second.
_TEXT_WIDTH = 24
_LEAST_WIDTH = 8
_GAP = 2


def terminal_width():
    """Return the width of the terminal in columns, or ``COLUMNS`` if set. None if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return int(columns)
    try:
        winsize = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    except (IOError, OSError):
        return None
    return struct.unpack("HHHH", winsize)[1] or None


def width_of(text):
    """Return the width of a text in columns."""
    return sum(_columns(char) for char in text)


def _columns(char):
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def fill(text, width, right=False):
    """Return ``text`` padded with blanks to ``width``, aligned to the right if ``right``."""
    blanks = u" " * (width - width_of(text))
    return blanks + text if right else text + blanks


def cut(text, width):
    """Return ``text``, truncated to ``width``."""
    if width_of(text) <= width:
        return text
    shown, left = u"", width - 3
    for char in text:
        left -= _columns(char)
        if left < 0:
            break
        shown += char
    return shown + u"..."


def wrap(parts, width):
    """Return ``parts``, separated by commas, as lines of at most ``width``. One line if ``width`` is None."""
    lines = [u""]
    for number, part in enumerate(parts):
        part += u"," if number < len(parts) - 1 else u""
        if lines[-1] and width is not None and width_of(lines[-1]) + 1 + width_of(part) > width:
            lines.append(u"")
        lines[-1] += (u" " if lines[-1] else u"") + part
    return lines


def lay_out(headers, rows, width):
    """Return the lines of a table that is not wider than ``width``, if it is not None.

    If it would be, empty columns are omitted and texts are truncated. Names and keys in the first column stay complete,
    so that they can be copied: one that is too long gets a line of its own.
    """
    columns = [[header] + [row[number] for row in rows] for number, header in enumerate(headers)]
    widths = _widths(columns)
    if width is not None and _total(widths) > width:
        columns = columns[:1] + [column for column in columns[1:] if any(_has_content(one) for one in column[1:])]
        widths = _fit(columns, _widths(columns), width)
    right = [_is_number(column) for column in columns]
    lines = []
    for row in zip(*columns):
        cells = [fill(cut(text, w), w, is_right) for text, w, is_right in zip(row[1:], widths[1:], right[1:])]
        first = row[0]
        if width_of(first) > widths[0]:
            lines.append(first)
            first = u""
        lines.append((u" " * _GAP).join([fill(first, widths[0], right[0])] + cells).rstrip())
    return u"\n".join(lines)


def _fit(columns, widths, width):
    texts = [number for number in range(1, len(columns)) if not _is_number(columns[number])]
    least = [min(w, _TEXT_WIDTH) if number in texts else w for number, w in enumerate(widths)]
    room = width - (_total(least) - least[0])
    widths[0] = min(widths[0], max(width_of(columns[0][0]), room))
    if all(width_of(text) > widths[0] for text in columns[0][1:]):
        widths[0] = width_of(columns[0][0])
    while texts and _total(widths) > width:
        widest = max(texts, key=lambda number: widths[number])
        if widths[widest] <= _LEAST_WIDTH:
            break
        widths[widest] -= 1
    return widths


def _widths(columns):
    return [max(width_of(text) for text in column) for column in columns]


def _total(widths):
    return sum(widths) + _GAP * (len(widths) - 1)


def _has_content(text):
    return text not in (u"0", u"-", u"")


def _is_number(column):
    """Return whether all rows of a column are numbers, durations, or empty."""
    return len(column) > 1 and all(text == u"-" or text[:1].isdigit() and u" " not in text for text in column[1:])
