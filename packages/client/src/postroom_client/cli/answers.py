"""Answers as text for people: a function for each command."""

from . import answers_daemon, answers_messages, answers_queues
from .output import cell, flatten, pairs

_DESCRIBERS = dict(answers_messages.DESCRIBERS, **answers_queues.DESCRIBERS)
_DESCRIBERS.update(answers_daemon.DESCRIBERS)


def describe(command, data):
    """Return the text of an answer to ``command``."""
    return _DESCRIBERS.get(command, _describe_any)(data)


def _describe_any(data):
    return pairs([(cell(name), cell(value)) for name, value in flatten(data)]) or u"done"
