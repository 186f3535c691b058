"""Pages: the command for the next page of a list, and commands that do all pages with progress and confirmation."""

import json
import sys

from .._compat import monotonic, text_type
from .._paging import COUNTS, pages
from .._protocol import FIELDS
from .names import SUBCOMMANDS, option_names
from .output import cell, json_text, quote, write

#: Commands that do all pages.
PAGED = ("purge", "move", "reprocess_dlq", "drop_dlq")
#: Commands whose effect cannot be undone.
IRREVERSIBLE = ("purge", "drop_dlq")
#: What a command does to its messages.
_DONE = {"purge": u"removed", "move": u"moved", "reprocess_dlq": u"ready again", "drop_dlq": u"removed"}
#: Seconds between two lines of progress on a terminal. Elsewhere the interval doubles, up to the second figure.
_PROGRESS_EVERY_S = 1.0
_PROGRESS_AT_LAST_EVERY_S = 60.0
_LISTS = ("list_queues", "list_dlq", "browse", "list_inflight", "list_consumers", "list_schedules")
_COMMON = ("ipc_root", "client_id", "timeout")


def next_page(options, word, payload, data):
    """Return the command that prints the next page of a list, to print below it. Empty if there is no other page."""
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


def run_all(call, command, payload, ask=False, rate=None):
    """Send a command until no message is left that it applied to at the start; once, with a limit or a message key.

    ``call`` sends one payload. Returns the last answer with the count of all pages, or None if ``ask`` and the user
    does not confirm. If it ends early, standard error gets the count so far and the command that continues.
    """
    if payload.get("messageKey") or "limit" in payload:
        return call(payload)
    if ask and not payload.get("dryRun"):
        expected = _Run(command, dict(payload, dryRun=True)).all(call)
        question = (expected.get(COUNTS[command]) or 0, _DONE[command], cell(payload.get("queue")))
        write(u"%d messages will be %s from %s. Type yes to continue:" % question, sys.stderr)
        if sys.stdin.readline().strip().lower() != "yes":
            return None
    return _Run(command, payload).all(call, rate)


class _Run(object):
    """One run over all pages of a command."""

    def __init__(self, command, payload):
        self._command = command
        self._payload = payload
        self._at_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._progress_every_s = _PROGRESS_EVERY_S
        self._progress_at = monotonic() + _PROGRESS_EVERY_S

    def all(self, call, rate=None):
        """Do all pages. Return the last answer with the count of all."""
        data, count = {}, 0
        try:
            for data, count in pages(call, self._command, self._payload, rate):
                if data.get("next"):
                    self._write_progress(count)
        except BaseException:
            if data.get("next") and not self._payload.get("dryRun"):
                self._write_continuation(data, count, rate)
            raise
        return dict(data, **{COUNTS[self._command]: count})

    def _write_progress(self, count):
        if monotonic() < self._progress_at:
            return
        write(u"%s so far: %d" % (_DONE[self._command], count), sys.stderr)
        if not self._at_terminal:
            self._progress_every_s = min(_PROGRESS_AT_LAST_EVERY_S, 2 * self._progress_every_s)
        self._progress_at = monotonic() + self._progress_every_s

    def _write_continuation(self, data, count, rate):
        place = {name: data[field] for name, field in (("after", "next"), ("upToEvent", "upToEvent")) if field in data}
        payload = dict(self._payload, **place)
        words = [u"postroom", [word for word, command, _ in SUBCOMMANDS if command == self._command][0]]
        for field in FIELDS[self._command]:
            if field[0] in payload:
                value = payload[field[0]]
                text = value if isinstance(value, text_type) else json_text(value)
                words += [option_names(field[0])[0], quote(text)]
        words += [] if rate is None else [u"--rate", u"%g" % rate]
        report = u"stopped: %s: %d, and possibly a page without an answer" % (_DONE[self._command], count)
        write(u"%s\ncontinue with: %s" % (report, u" ".join(words)), sys.stderr)


def _option(name, value):
    if isinstance(value, dict):
        text = json.dumps(value, sort_keys=True)  # plain ASCII: nothing to escape for a terminal
        text = text if isinstance(text, text_type) else text.decode("ascii")
    else:
        text = cell(value)
    # After a blank, a value that begins with a dash would be an option.
    return [name + u"=" + quote(text)] if text.startswith(u"-") else [name, quote(text)]
