"""The parser of the command line: commands, options, exit statuses."""

import argparse
import re

from .. import __version__
from .._paging import check_rate
from .._protocol import FIELDS, INSTEAD_OF
from ..errors import InvalidArgument
from .names import (
    ALIASES,
    DIRECTORIES,
    GROUPS,
    LOG_WORDS,
    PIPE,
    SUBCOMMANDS,
    WORK,
    option_help,
    option_names,
    variable,
)
from .payload import UsageError
from .pipe import add_options as add_options_of_pipe

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NO_ANSWER = 3
EXIT_NOTHING = 4

DEFAULT_TIMEOUT_MS = 30000

#: Common options that have a value.
_WITH_VALUE = ("--ipc-root", "--timeout", "--client-id", "--requests-dir", "--responses-dir", "--dead-dir")
_WITHOUT_VALUE = ("--json", "--wait-daemon", "-h", "--help", "--version")

_EPILOG = """\
exit status:
  0  done
  1  an error answer, an error for an item of a batch, an unusable mailbox, or
     a health whose status is not ok
  2  wrong usage
  3  no answer in time, or no daemon
  4  nothing to consume

--json prints exactly one JSON object on one line:
  {"ok": true, "command": ..., "data": {...}}
  {"ok": false, "command": ..., "error": {"code": ..., "message": ...}}
data is the data of the answer. code is one of the protocol (ERR_...), or
CLIENT_TIMEOUT, DAEMON_NOT_RUNNING, REQUEST_REJECTED, MAILBOX_ERROR, USAGE.
The error of ERR_NOT_LEADER also has data: leader and address.

The message is --message TEXT, --message @FILE (@@ for a leading @), or standard
input (--message -, or no --message if standard input is not a terminal). It is
sent as a string, byte for byte, unless --json-body or --binary is given.

Words of the C++ system's clients are accepted: extend-lease and extendlease
(extend), listdlq and dlq (list-dlq), reprocess-dlq (reprocess), help; options
with --message, but without a command, are those of publish. done is short for
browse --state done.
"""

_SEE_HELP = " (see %s --help)"
_UNKNOWN_WORD = re.compile(r"argument command: invalid choice: u?'(.*)' \(choose")


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        unknown = _UNKNOWN_WORD.match(message)
        if unknown:  # argparse would list all commands on one line
            message = "there is no command '%s'%s" % (unknown.group(1), _did_you_mean(unknown.group(1)))
        elif message == "too few arguments" and self.prog.split()[-1] in GROUPS:  # on Python 2.7
            raise UsageError(_missing_word(self.prog.split()[-1]) + _SEE_HELP % "postroom")
        raise UsageError(message + _SEE_HELP % self.prog)


def parse(arguments):
    """Return the namespace of a command line: ``word`` and ``command`` name the command, fields have their wire names.

    Raises ``UsageError``. Exits with 0 after ``--help`` or ``--version``.
    """
    arguments = _expand(arguments)
    try:
        options = _parse_all(arguments)
    except UsageError:
        # argparse reports a missing option first; an unknown one, which is probably that option, helps more.
        _parse_all(arguments, lenient=True)
        raise
    if not getattr(options, "command", None):
        if not getattr(options, "word", None):
            raise UsageError("a command is missing" + _SEE_HELP % "postroom")
        raise UsageError(_missing_word(options.word) + _SEE_HELP % "postroom")
    return options


def split(arguments):
    """Return the arguments for ``parse``, and the program behind ``--`` for ``work`` to run (other commands: None)."""
    position = _position_of_word(arguments)
    if arguments[position : position + 1] != ["work"]:
        return arguments, None
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def command_words(options):
    """Return the words of the command, such as ``publish`` or ``policy get``."""
    second = getattr(options, options.word + "_word", None)
    return options.word + (" " + second if second else "")


def make_parser(arguments, lenient=False):
    """Return the parser. Only the commands in ``arguments`` have their options, because creating all of them is slow.
    ``lenient``: no option is required."""
    parser = _Parser(
        prog="postroom",
        description="Commands of the Postroom message queue, through its mailbox directory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version="postroom " + __version__)
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _add_common(common)
    _add_common(parser)
    words = parser.add_subparsers(dest="word", metavar="command")
    groups = {}
    for word, command, text in SUBCOMMANDS:
        group = words
        if " " in word:
            first, word = word.split(" ")
            if first not in groups:
                metavar = "|".join(_second_words(first))
                parent = words.add_parser(first, help=GROUPS[first], parents=[common])
                groups[first] = parent.add_subparsers(dest=first + "_word", metavar=metavar)
                if first == "log":  # they were expanded before
                    for short, text_of_short in LOG_WORDS:
                        groups[first].add_parser(short, help=text_of_short)
                    _add_pipe(groups[first], common)
            group = groups[first]
        own = group.add_parser(word, help=text, description=text, parents=[common])
        own.set_defaults(command=command)
        if word in arguments:
            _add_fields(own, command, lenient)
    _add_work(words, "work" in arguments, lenient)
    return parser


def _expand(arguments):
    """Expand ``policy QUEUE`` and ``policy --queue QUEUE`` to ``policy get --queue QUEUE``. A queue named get, set,
    patterns or set-patterns needs the long form. Expand ``done`` to ``browse --state done``, and what only the C++
    system's clients wrote: other words, ``help``, and options with ``--message`` without a word, which mean
    ``publish``."""
    position = _position_of_word(arguments)
    before, word, rest = arguments[:position], arguments[position : position + 1], arguments[position + 1 :]
    if word == ["help"]:
        return rest + ["--help"]
    if word == ["done"]:
        return before + ["browse", "--state", "done"] + rest
    if word and word[0] in ALIASES:
        return before + [ALIASES[word[0]]] + rest
    if word and word[0].startswith("--") and any(one.split("=")[0] == "--message" for one in word + rest):
        return before + ["publish"] + word + rest
    if word == ["log"]:
        return before + _expand_log(rest)
    if word != ["policy"] or not rest or {"-h", "--help"}.union(_second_words("policy")).intersection(rest):
        return arguments
    option = [] if rest[0].startswith("-") else ["--queue"]
    return before + ["policy", "get"] + option + rest


def _expand_log(rest):
    """Expand ``log WORD NAME`` to ``log WORD --queue NAME``, and the words create, delete and tail to those that they
    are short for. Raises ``UsageError`` if the name is missing."""
    if rest[:1] == ["pipe"]:
        return ["log"] + rest
    if len(rest) > 1 and not rest[1].startswith("-"):
        rest = [rest[0], "--queue"] + rest[1:]
    elif rest[:1] and rest[0] in _second_words("log") and not any(one.startswith(_NAMED) for one in rest):
        raise UsageError("the name of the log is missing: postroom log %s NAME [OPTIONS]" % rest[0])
    return _LOG_WORDS.get(rest[0] if rest else None, ["log"] + rest[:1]) + rest[1:]


#: How an option begins with which ``log WORD`` needs no name behind it.
_NAMED = ("--q", "-h", "--h")

_LOG_WORDS = {
    "create": ["create-queue", "--log"],
    "delete": ["delete-queue", "--discard", "--log"],
    "tail": ["log", "read", "--follow"],
}


def _position_of_word(arguments):
    """Return the position of the command, after the common options before it."""
    position = 0
    while position < len(arguments) and arguments[position].split("=")[0] in _WITH_VALUE + _WITHOUT_VALUE:
        position += 2 if arguments[position] in _WITH_VALUE else 1
    return position


def _parse_all(arguments, lenient=False):
    options, unknown = make_parser(arguments, lenient).parse_known_args(arguments)
    if unknown:
        program = "postroom " + command_words(options) if getattr(options, "command", None) else "postroom"
        raise UsageError("unrecognized arguments: %s" % " ".join(unknown) + _SEE_HELP % program)
    return options


def _did_you_mean(word):
    from difflib import get_close_matches

    similar = get_close_matches(word, [one.split(" ")[0] for one, _, _ in SUBCOMMANDS] + ["work"], 1)
    return ": did you mean %s?" % similar[0] if similar else ""


def _second_words(first):
    words = [word.split(" ")[1] for word, _, _ in SUBCOMMANDS if word.startswith(first + " ")]
    return [word for word, _ in LOG_WORDS] + ["pipe"] + words if first == "log" else words


def _missing_word(first):
    words = _second_words(first)
    return "%s needs %s" % (first, " or ".join([", ".join(words[:-1]), words[-1]]))


def _add_pipe(words, common):
    """Add ``postroom log pipe``, which is not a command of the protocol."""
    usage = "postroom log pipe FROM [TO ...] [OPTIONS]"
    own = words.add_parser("pipe", help=PIPE, description=PIPE, usage=usage, parents=[common])
    own.set_defaults(command="pipe")
    add_options_of_pipe(own)


def _add_work(words, wanted, lenient):
    """Add ``postroom work``, which is not a command of the protocol: its --timeout is for the program that it runs."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    _add_common(common, without="--timeout")
    own = words.add_parser(
        "work", help=WORK, parents=[common], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own.set_defaults(command="work")
    if wanted:
        from .work import add_options

        add_options(own, lenient)


def _add_common(parser, without=None):
    add = parser.add_argument
    hidden = argparse.SUPPRESS
    add("--ipc-root", default=hidden, metavar="DIR", help="the mailbox (default: POSTROOM_IPC_ROOT, or ./ipc)")
    if without != "--timeout":
        add("--timeout", default=hidden, type=int, metavar="MS", help="milliseconds to wait for the answer (30000)")
    add("--client-id", default=hidden, metavar="ID", help="client id of the requests (default: cli-<uid>)")
    for name, text in DIRECTORIES:
        text += " (default: %s, or %s)" % (variable(name), name.split("_")[0])
        add("--" + name.replace("_", "-"), default=hidden, metavar="NAME", help=text)
    add("--json", action="store_true", default=hidden, help="print one JSON object on one line")
    add("--wait-daemon", action="store_true", default=hidden, help="wait for the daemon if it does not run")


def _add_fields(parser, command, lenient):
    replaced = [INSTEAD_OF[field[0]] for field in FIELDS[command] if field[0] in INSTEAD_OF]
    one_of = parser.add_mutually_exclusive_group(required=not lenient) if replaced else None
    for name, _, kind, text, required, default in FIELDS[command]:
        is_one_of = name in INSTEAD_OF or name in replaced
        add, required = (one_of.add_argument, False) if is_one_of else (parser.add_argument, required)
        text = option_help(command, name, text, default).replace("%", "%%")
        names = option_names(name)
        if kind == "boolean" and names[0].startswith("--no-"):
            add(*names, dest=name, action="store_false", default=None, help=text)
        elif name == "requeue":  # the C++ system's client needed a word behind it
            add(*names, dest=name, nargs="?", const=True, type=_boolean, metavar="true|false", help=text)
        elif kind == "boolean":
            add(*names, dest=name, action="store_true", default=None, help=text)
        elif kind in ("object", "array"):
            add(*names, dest=name, metavar="JSON", help=text)
        else:
            metavar = _METAVARS.get(kind, "TEXT")
            kind_of = {"integer": int, "number": float, "string or number": _scalar}.get(kind, str)
            choices = _CHOICES.get(name)
            add(
                *names,
                dest=name,
                type=kind_of,
                required=required and not lenient,
                choices=choices,
                metavar=None if choices else metavar,
                help=text
            )
    add = parser.add_argument
    if command == "set_schedule":
        add("--json-body", action="store_true", help="message and attributes are JSON: send their values")
    elif command in ("publish", "set", "append"):
        add("--json-body", action="store_true", help="message and attributes are JSON: send their values")
        add("--binary", action="store_true", help="the message is bytes: send them as base64")
    elif command == "consume_next":
        add("--ack", action="store_true", help="acknowledge the message after printing it")
        add("--raw", action="store_true", help="print only the body, unchanged")
    elif command == "read":
        add("--follow", action="store_true", help="show further records as they are appended, until interrupted")
        add("--move", action="store_true", help="with --reader: move it behind the records that were shown")
        add("--raw", action="store_true", help="print only the bodies, unchanged")
    elif command == "create_queue":
        add("--log", action="store_true", help="create a log, whose records stay for many readers")
    elif command == "delete_queue":
        add("--log", action="store_true", help="only if it is a log: a queue stays as it is")
    elif command in ("purge", "drop_dlq"):
        add("--yes", action="store_true", help="do not ask for confirmation")
    elif command == "reprocess_dlq":
        add("--rate", type=_rate, metavar="N", help="reprocess at most N messages a second")
    elif command == "metrics":
        add(
            "--prometheus", dest="format", action="store_const", const="prometheus",
            help="short for --format prometheus"
        )
    elif command in ("pause", "resume"):
        add("--publish", dest="operation", action="store_const", const="publish", help="short for --operation publish")


_CHOICES = {
    "start": ("oldest", "newest"),
    "ifTrimmed": ("error", "skip"),
    "payloadAs": ("text", "value", "none"),
    "operation": ("consume", "publish"),
    "format": ("prometheus",),
}
_METAVARS = {"integer": "N", "number": "N", "queue name": "NAME", "string or object": "JSON"}


def _rate(text):
    try:
        return check_rate(float(text))
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error))


def _boolean(text):
    """Return whether a text means yes. Raises ``argparse.ArgumentTypeError``."""
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise argparse.ArgumentTypeError("must be true or false, or be left out, not %r" % text)


def _scalar(text):
    """Return a number if the text is one, else the text."""
    for convert in (int, float):
        try:
            number = convert(text)
        except ValueError:
            continue
        if number == number and abs(number) != float("inf"):
            return number
    return text
