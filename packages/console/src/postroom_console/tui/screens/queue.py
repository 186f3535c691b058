"""One queue: its messages by state, its consumers, and its policy with the origin of each value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType

from ...data import actions
from ...data.message_filter import message_filter
from ...data.rows import Cell, Column, Row
from ...data.text import age, clean, figure, size
from ...data.views import short_key
from ...i18n import mark, tr
from ..dialogs import Ask, Field
from ..keys import BACK, QUEUE, Key
from ..paged_view import PagedView
from ..row_list import RowList

_STATES: Final = (
    mark("ready"),
    mark("delayed"),
    mark("gathering"),
    mark("drafting"),
    mark("inflight"),
    mark("held"),
    mark("dead"),
    mark("done"),
)  # also fields of Queue
#: States that few queues have; shown if there is a message in them.
_RARE: Final = ("gathering", "drafting", "done")
_PAGE: Final = 200


class QueueView(PagedView):
    """Opened from the list of queues; ``esc`` returns."""

    KEYS: ClassVar[tuple[Key, ...]] = QUEUE
    BINDINGS: ClassVar[list[BindingType]] = [key.binding() for key in (*QUEUE, *BACK)]
    QUERY: ClassVar[str] = "messages"
    LISTED: ClassVar[str] = "messages"

    def __init__(self, queue: str) -> None:
        super().__init__()
        self._queue = queue
        self._state = _STATES[0]

    def compose_body(self) -> ComposeResult:
        messages = [
            Column(tr("MESSAGE"), 8),
            Column(tr("PRI"), 3, right=True, from_width=44),
            Column(tr("TRY"), 3, right=True),
            Column(tr("AGE"), 6, right=True),
            Column(tr("SIZE"), 6, right=True, from_width=50),
            Column(tr("BODY"), 16, grows=True),
        ]
        yield RowList(messages, tr("none in this state"), name="messages")
        consumers = [
            Column(tr("CONSUMER"), 16, grows=True),
            Column(tr("INFL"), 5, right=True),
            Column(tr("GIVEN"), 7, right=True),
            Column(tr("LAST ASKED"), 10, right=True),
        ]
        yield RowList(consumers, tr("no consumer since the daemon started"), name="consumers")
        policy = [
            Column(tr("POLICY"), 28),
            Column(tr("VALUE"), 10, grows=True),
            Column(tr("FROM"), 16, from_width=56, wide=40),
        ]
        yield RowList(policy, "", name="policy")

    def subscribe(self) -> None:
        self.poll_page("browse", _PAGE, 200)
        self.poll("consumers", "list_consumers", {"queue": self._queue}, 3000)
        self.poll("policy", "get_policy", {"queue": self._queue, "explain": True}, 5000)

    def selection(self) -> dict[str, Any]:
        wanted = message_filter(self.filter_text)
        return {"queue": self._queue, "state": self._state, **({"filter": wanted} if wanted else {})}

    def unsubscribe(self) -> None:
        for name in ("messages", "consumers", "policy"):
            self.console.source.unsubscribe(name)

    def _about(self, name: str) -> Mapping[str, Any]:
        answer = self.console.model.data(name)
        return answer if answer.get("queue", self._queue) == self._queue else {}

    def update_body(self) -> None:
        now = self.console.clock()
        rows = [_message_row(message) for message in self.answer().get("messages", [])]
        self.listed().show(rows, self.empty_text(tr("none in this state")))
        engine_now = self.console.model.engine_now("consumers", now)
        consumers = [one for one in self._about("consumers").get("consumers", []) if one["queue"] == self._queue]
        self.query_one("#consumers", RowList).show([_consumer_row(one, engine_now) for one in consumers])
        explained = self._about("policy").get("explanation") or {}
        self.query_one("#policy", RowList).show(
            [_policy_row(name, value) for name, value in sorted(explained.items(), key=_own_first)]
        )

    def summary(self) -> str:
        queue = self.console.model.queues.get(self._queue)
        words = [f"{clean(self._queue)}:"]
        for state in _STATES:
            number = figure(getattr(queue, state)) if queue else "-"
            if state in _RARE and state != self._state and number in ("0", "-"):
                continue
            words.append(f"[{tr(state)} {number}]" if state == self._state else f"{tr(state)} {number}")
        words += [self.pages.range_text(self.answer()), self.marked_text()]
        return " ".join(filter(None, words))

    def action_export(self) -> None:
        self.save_all("browse", self._queue, self._state)

    def action_back(self) -> None:
        if self.filter_text or self.prompt_line.display:
            super().action_back()
        else:
            self.app.pop_screen()

    def action_state(self) -> None:
        self._state = _STATES[(_STATES.index(self._state) + 1) % len(_STATES)]
        self.first()
        self.refresh_view()

    def action_hold(self) -> None:
        if keys := self.chosen_keys():
            self.console.propose(actions.hold(self._queue, keys, self._state == "held"))

    def action_move_messages(self) -> None:
        keys = self.chosen_keys()

        def answered(values: dict[str, str] | None) -> None:
            if values and values["to"]:
                self.console.propose(actions.move_keys(self._queue, keys, values["to"]))

        if keys:
            title = f"{tr('MOVE to another queue')}: {len(keys)} {tr('of')} {clean(self._queue)}"
            self.app.push_screen(Ask(title, [Field("to", tr("to the queue:"))]), answered)

    def action_purge(self) -> None:
        if self._state == "inflight":
            self.console.say(tr("messages in flight cannot be removed until their leases end"))
        else:
            path = self.save_path(self._queue, self._state)
            self.console.propose(actions.purge(self._queue, self._state, path))

    def action_policy(self) -> None:
        row = self.query_one("#policy", RowList).current
        own = self._about("policy").get("override") or {}
        name = str(row.key) if row else ""

        def answered(values: dict[str, str] | None) -> None:
            if not values or not values["name"]:
                return
            try:
                value = json.loads(values["value"])
            except ValueError:
                value = values["value"]
            changes: dict[str, Any] = {}
            at = changes
            *path, last = values["name"].split(".")
            for part in path:
                at = at.setdefault(part, {})
            at[last] = value
            self.console.propose(actions.set_policy(self._queue, changes, own))

        current = (self._about("policy").get("explanation") or {}).get(name) or {}
        now = clean(json.dumps(current.get("value"), ensure_ascii=False))
        value = tr("new value (now {value}):").format(value=now) if name else tr("new value:")
        fields = [Field("name", tr("key of the policy:"), name), Field("value", value)]
        self.app.push_screen(Ask(f"{tr('POLICY')} {clean(self._queue)}", fields), answered)

    def on_row_list_opened(self, event: RowList.Opened) -> None:
        event.stop()
        if event.row_list.id == "messages":
            from .message import MessageView

            self.app.push_screen(MessageView(str(event.row.key)))


def _message_row(message: Mapping[str, Any]) -> Row:
    return Row(
        message["messageKey"],
        (
            Cell(short_key(message["messageKey"])),
            Cell("-" if message.get("priority", 0) is None else str(message.get("priority", 0))),
            Cell(str(message.get("attempt", ""))),
            Cell(age(int(message.get("ageMs") or 0))),
            Cell(size(int(message.get("bytes") or 0))),
            Cell(clean(str(message.get("preview") or ""))),
        ),
    )


def _consumer_row(consumer: Mapping[str, Any], engine_now: int) -> Row:
    asked = consumer.get("lastAskedEngineMs")
    return Row(
        consumer["consumerId"],
        (
            Cell(clean(str(consumer["consumerId"]))),
            Cell(str(consumer.get("inflight", 0))),
            Cell(str(consumer.get("delivered", 0))),
            Cell("-" if asked is None else age(max(engine_now - int(asked), 0))),
        ),
    )


def _own_first(value: tuple[str, Mapping[str, Any]]) -> tuple[bool, str]:
    """Sorts values set for the queue or a pattern before defaults."""
    return value[1].get("layer") == "default", value[0]


def _policy_row(name: str, value: Mapping[str, Any]) -> Row:
    layer = str(value.get("layer", ""))
    origin = f"{layer} {value['pattern']}" if value.get("pattern") else layer
    return Row(name, (Cell(clean(name)), Cell(clean(json.dumps(value.get("value")))), Cell(clean(origin))))
