"""``postroom purge``, ``move``, ``reprocess`` and ``drop-dlq``: page after page to the end, with a word about how far
it has come, and a question before what cannot be undone."""

import sys

from ._cli_output import cell, json_text, quote, write
from ._cli_words import SUBCOMMANDS, option_names
from ._compat import monotonic, text_type
from ._paging import COUNTS, pages
from ._protocol import FIELDS

#: What is said of the messages that a command has done.
_DONE = {"purge": u"removed", "move": u"moved", "reprocess_dlq": u"ready again", "drop_dlq": u"removed"}
#: Commands whose effect cannot be undone.
FINAL = ("purge", "drop_dlq")
#: Seconds between two words about how far it has come: at a terminal, and at first and at last anywhere else.
_SAY_EVERY_S = 1.0
_SAY_AT_LAST_EVERY_S = 60.0


def operate(call, command, payload, ask=False, rate=None):
    """Send a command until all is done that it meant when it began; with a limit, or a message's own key, once. The
    last reply's data with the sum of all pages; None if whoever was asked does not want it.

    ``call`` sends one payload. When it ends early, standard error says how much was done, and how to go on.
    """
    if payload.get("messageKey") or "limit" in payload:
        return call(payload)
    if ask and not payload.get("dryRun"):
        expected = _Run(command, dict(payload, dryRun=True)).all(call)
        found = (expected.get(COUNTS[command]) or 0, _DONE[command], cell(payload.get("queue")))
        write(u"%d messages will be %s from %s. Type yes to go on:" % found, sys.stderr)
        if sys.stdin.readline().strip().lower() != "yes":
            return None
    return _Run(command, payload).all(call, rate)


class _Run(object):
    def __init__(self, command, payload):
        self._command = command
        self._payload = payload
        self._at_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._say_every_s = _SAY_EVERY_S
        self._say_at = monotonic() + _SAY_EVERY_S

    def all(self, call, rate=None):
        """Do all pages."""
        data, count = {}, 0
        try:
            for data, count in pages(call, self._command, self._payload, rate):
                if data.get("next"):
                    self._say_how_far(count)
        except BaseException:  # it goes on its way; this only says what was done
            if data.get("next") and not self._payload.get("dryRun"):
                self._say_how_to_go_on(data, count, rate)
            raise
        return dict(data, **{COUNTS[self._command]: count})

    def _say_how_far(self, count):
        if monotonic() < self._say_at:
            return
        write(u"%s so far: %d" % (_DONE[self._command], count), sys.stderr)
        if not self._at_terminal:
            self._say_every_s = min(_SAY_AT_LAST_EVERY_S, 2 * self._say_every_s)
        self._say_at = monotonic() + self._say_every_s

    def _say_how_to_go_on(self, data, count, rate):
        place = {name: data[word] for name, word in (("after", "next"), ("upToEvent", "upToEvent")) if word in data}
        payload = dict(self._payload, **place)
        words = [u"postroom", [word for word, command, _ in SUBCOMMANDS if command == self._command][0]]
        for field in FIELDS[self._command]:
            if field[0] in payload:
                words += [option_names(field[0])[0], _argument(payload[field[0]])]
        words += [] if rate is None else [u"--rate", u"%g" % rate]
        told = u"stopped: %s: %d, and perhaps a page that had no answer yet" % (_DONE[self._command], count)
        write(u"%s\ngo on with: %s" % (told, u" ".join(words)), sys.stderr)


def _argument(value):
    return quote(value if isinstance(value, text_type) else json_text(value))
