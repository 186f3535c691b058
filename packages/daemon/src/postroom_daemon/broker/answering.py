"""Giving the answers of a group, each to its door."""

from __future__ import annotations

import logging

from postroom_common.errors import CommandError
from postroom_common.protocol import ErrorCode

from ..model.request import Answer, Request
from ..platform.logs import about

log = logging.getLogger(__name__)


def give(answers: list[tuple[Request, Answer]]) -> None:
    """Give answers in their order; one that cannot be given keeps no other from its client."""
    for request, answer in answers:
        try:
            request.on_answer(answer)
        except Exception:
            # What was done is done, and durable: only its answer cannot be given.
            log.exception("the answer to %s cannot be given", name_of(request), extra=about(**request.log_fields()))
            error = CommandError(ErrorCode.ANSWER_LOST, "this request was executed; its answer cannot be given")
            try:
                request.on_answer(Answer(error=error))
            except Exception:
                log.exception("nor can the error; the others of the group are answered all the same")


def name_of(request: Request) -> str:
    """What the log calls a request."""
    return f"request {request.wire.request_id} of {request.who.client_id}"
