"""The actions of a technician: the requests that each one sends, its effect in words, and its undo.

A plan consists of keys and names, never of rows: what moves on the screen while a dialog is open does not change it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize

from ..i18n import mark, tr, trn
from .text import age, clean
from .updates import Save, Step, Steps

#: Bytes of the queue in a file name, of which a directory takes 255.
_NAME_BYTES: Final = 180


@dataclass(frozen=True, slots=True)
class Plan:
    """An action to be confirmed. ``verb`` names it in the log, ``effect`` describes it. ``counts`` are dry runs that
    count the affected messages, where their number is unknown. ``typed`` must be typed to confirm, unless it is empty.
    ``rate`` limits the messages per second."""

    verb: str
    queue: str
    effect: str
    steps: Steps
    counts: tuple[Step, ...] = ()
    typed: str = ""
    undo: Plan | None = None
    rate: float | None = None

    def is_typed(self, text: str) -> bool:
        """Whether a text is what must be typed: raw or as displayed, in any Unicode normalization."""
        wanted = {normalize("NFC", name) for name in (self.typed, clean(self.typed))}
        return normalize("NFC", text) in wanted


def save_path(root: Path, queue: str, what: str, wall_ms: int) -> Path:
    """A file for messages that are removed or saved, named after the queue, what they are, and the time."""
    safe = "".join(character if character.isalnum() else "-" for character in queue)
    safe = safe.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore")
    return root / f"{safe}-{what}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall_ms / 1000))}.jsonl"


def pause(queue: str, operation: str) -> Plan:
    """Pause consuming from a queue, or publishing to it."""
    effect = (
        tr("Consumers of {queue} get no more messages. They may still settle those they have.")
        if operation == "consume"
        else tr("Publishing to {queue} is refused (ERR_PAUSED) until it is resumed.")
    )
    steps = (Step("pause", {"queue": queue, "operation": operation}),)
    return Plan("pause", queue, effect.format(queue=clean(queue)), steps, undo=_resume(queue, (operation,)))


def resume(queue: str, operations: Sequence[str]) -> Plan:
    """Resume consuming or publishing."""
    back = tuple(Step("pause", {"queue": queue, "operation": operation}) for operation in operations)
    undo = Plan("pause", queue, tr("{queue} is paused again.").format(queue=clean(queue)), back)
    return replace(_resume(queue, operations), undo=undo)


def _resume(queue: str, operations: Sequence[str]) -> Plan:
    steps = tuple(Step("resume", {"queue": queue, "operation": operation}) for operation in operations)
    return Plan("resume", queue, tr("{queue} is resumed.").format(queue=clean(queue)), steps)


def _to(to: str) -> dict[str, str]:
    return {"to": to} if to else {}


def reprocess(queue: str, keys: Sequence[str], to: str = "") -> Plan:
    """Reprocess dead letters by their keys."""
    steps = tuple(Step("reprocess_dlq", {"messageKey": key, **_to(to)}) for key in keys)
    return Plan("reprocess", queue, _reprocessed(len(keys), to), steps)


def reprocess_all(
    queue: str, wanted: Mapping[str, Any], to: str = "", rate: float | None = None, is_dry: bool = False
) -> Plan:
    """Reprocess all dead letters of a queue that match a filter. ``is_dry`` only counts them."""
    payload = {"queue": queue, **({"filter": dict(wanted)} if wanted else {}), **_to(to)}
    counting = Step("reprocess_dlq", {**payload, "dryRun": True, "limit": 1000})
    if is_dry:
        return Plan("dry run", queue, tr("Counts what would be reprocessed."), (counting,))
    effect = tr("All matching dead letters of {queue} become ready again").format(queue=clean(queue))
    effect += f" -> {clean(to)}" if to else ""
    step = Step("reprocess_dlq", {**payload, "limit": 100 if rate else 1000})
    return Plan("reprocess", queue, effect + ".", (step,), counts=(counting,), rate=rate)


def quarantine(queue: str, keys: Sequence[str], is_apart: bool) -> Plan:
    """Quarantine dead letters, or undo that."""
    return replace(_quarantine(queue, keys, is_apart), undo=_quarantine(queue, keys, not is_apart))


def _quarantine(queue: str, keys: Sequence[str], is_apart: bool) -> Plan:
    effect = (
        trn(
            "{n} dead letter is quarantined: no filter reprocesses or removes it, and it does not age out.",
            "{n} dead letters are quarantined: no filter reprocesses or removes them, and they do not age out.",
            len(keys),
        )
        if is_apart
        else trn("{n} dead letter is no longer quarantined.", "{n} dead letters are no longer quarantined.", len(keys))
    )
    steps = tuple(Step("quarantine_dlq", {"messageKey": key, "quarantined": is_apart}) for key in keys)
    return Plan("quarantine", queue, effect, steps)


def _reprocessed(count: int, to: str) -> str:
    text = trn("{n} dead letter becomes ready again", "{n} dead letters become ready again", count)
    return f"{text} -> {clean(to)}." if to else f"{text}."


def drop(queue: str, keys: Sequence[str], save: Path) -> Plan:
    """Remove dead letters permanently, after saving them to a file."""
    effect = trn("{n} dead letter is removed permanently.", "{n} dead letters are removed permanently.", len(keys))
    steps = tuple(Step("drop_dlq", {"messageKey": key}) for key in keys)
    saving = Save(save, "get_message", tuple({"messageKey": key} for key in keys), "")
    return Plan("drop", queue, f"{effect} {_saved(save)}", (saving, *steps), typed=queue)


def purge(queue: str, state: str, save: Path) -> Plan:
    """Remove all messages of a queue in a state (``dead``, ``ready``, ``delayed``, ``held``) permanently, after saving
    them to a file."""
    payload = {"queue": queue, "state": state, "limit": 1000}
    asked = ({"queue": queue, "limit": 1000, "fullBodies": True},)
    saving = (
        Save(save, "list_dlq", asked, "messages")
        if state == "dead"
        else Save(save, "browse", ({"queue": queue, "state": state, "limit": 1000, "fullBodies": True},), "messages")
    )
    effect = tr("All {state} messages of {queue} are removed permanently.").format(state=tr(state), queue=clean(queue))
    return Plan(
        "purge",
        queue,
        f"{effect} {_saved(save)}",
        (saving, Step("purge", payload, only_saved=state == "dead")),
        counts=(Step("purge", {**payload, "dryRun": True}),),
        typed=queue,
    )


def _saved(path: Path) -> str:
    return tr("They are first saved to {file}.").format(file=clean(str(path)))


def move(queue: str, to: str, state: str = "") -> Plan:
    """Move the backlog of a queue to another queue."""
    payload = {"queue": queue, "to": to, "limit": 1000, **({"state": state} if state else {})}
    effect = tr("All waiting messages of {queue} are moved to {to}.").format(queue=clean(queue), to=clean(to))
    steps = (Step("move", payload),)
    return Plan("move", queue, effect, steps, counts=(Step("move", {**payload, "dryRun": True}),))


def settle(verb: str, queue: str, leases: Sequence[Mapping[str, Any]], reason: str = "") -> Plan:
    """Settle or extend leases in the name of their consumers. ``verb`` is ``extend``, ``release`` or ``nack``."""
    command = {"extend": "extend_lease", "release": "release", "nack": "nack"}[verb]
    more: dict[str, Any] = {"requeue": True, "reason": reason or "by the console"} if verb == "nack" else {}
    steps = tuple(
        Step(command, {"messageKey": one["messageKey"], "consumerId": one["consumerId"], **more}) for one in leases
    )
    effect = {
        "extend": trn("{n} lease restarts its duration.", "{n} leases restart their durations.", len(leases)),
        "release": trn(
            "{n} message returns to its place, the attempt is not counted; its consumer may still work on it.",
            "{n} messages return to their places, the attempts are not counted; consumers may still work on them.",
            len(leases),
        ),
        "nack": trn("{n} delivery counts as failed.", "{n} deliveries count as failed.", len(leases)),
    }[verb]
    return Plan(verb, queue, effect, steps)


def hold(queue: str, keys: Sequence[str], is_held: bool) -> Plan:
    """Put messages on hold, or take messages off hold."""
    return replace(_hold(queue, keys, is_held), undo=_hold(queue, keys, not is_held))


def _hold(queue: str, keys: Sequence[str], is_held: bool) -> Plan:
    verb = mark("unhold") if is_held else mark("hold")
    effect = (
        trn("{n} message may be delivered.", "{n} messages may be delivered.", len(keys))
        if is_held
        else trn(
            "{n} message is not delivered until it is taken off hold.",
            "{n} messages are not delivered until they are taken off hold.",
            len(keys),
        )
    )
    return Plan(verb, queue, effect, tuple(Step(verb, {"messageKey": key}) for key in keys))


def move_keys(queue: str, keys: Sequence[str], to: str) -> Plan:
    """Move messages to another queue by their keys."""
    return replace(_move_keys(queue, keys, to), undo=_move_keys(to, keys, queue))


def _move_keys(queue: str, keys: Sequence[str], to: str) -> Plan:
    effect = f"{trn('{n} message is moved', '{n} messages are moved', len(keys))} -> {clean(to)}."
    return Plan("move", queue, effect, tuple(Step("move", {"messageKey": key, "to": to}) for key in keys))


def export(queue: str, save: Save) -> Plan:
    """Save messages to a file. Nothing is changed."""
    effect = tr("Messages with their bodies are written to {file}.").format(file=clean(str(save.path)))
    return Plan("export", queue, effect, (save,))


def set_policy(queue: str, changes: Mapping[str, Any], before: Mapping[str, Any]) -> Plan:
    """Change keys of a queue's own policy. The undo restores ``before``, the previous own policy."""
    effect = tr("The policy of {queue} is changed: {changes}.").format(
        queue=clean(queue), changes=clean(json.dumps(dict(changes), ensure_ascii=False))
    )
    back: tuple[Step, ...] = (Step("set_policy", {"queue": queue, "policy": {}}),)  # keys that are not named would stay
    if before:
        back += (Step("set_policy", {"queue": queue, "policy": dict(before)}),)
    words = tr("{queue} gets its previous own policy back: {policy}.").format(
        queue=clean(queue), policy=clean(json.dumps(dict(before), ensure_ascii=False)) if before else tr("none")
    )
    undo = Plan("policy", queue, words, back)
    return Plan("policy", queue, effect, (Step("set_policy", {"queue": queue, "policy": dict(changes)}),), undo=undo)


def lasting(plan: Plan, count: int | None) -> str:
    """How long a plan with a rate will take; empty without one."""
    if not plan.rate or not count:
        return ""
    return tr("It takes about {span}.").format(span=age(count / plan.rate * 1000))
