"""Whether a body is what its queue takes: rules in the form of the C++ system, and JSON Schema."""

from __future__ import annotations

from typing import Final

from postroom_common.body import Form, Part
from postroom_common.codec import strict_loads
from postroom_common.errors import CommandError
from postroom_common.policy import Policy
from postroom_common.protocol import ErrorCode

from ..policy.policies import Policies

#: Characters of an answer that tell what is wrong.
_TEXT_LIMIT: Final = 2000


def check_body(policies: Policies, policy: Policy, queue: str, part: Part) -> str:
    """What is wrong with the body of a message that its queue keeps as a dead letter; '' if nothing is.

    Raises ``CommandError`` (ERR_VALIDATION_FAILED) where such a message is refused, and for a schema that cannot be
    used.
    """
    checks = policies.checks(queue, policy)
    if not checks:
        return ""
    problems: list[str] = []
    try:
        if part.form is Form.BINARY:
            raise ValueError("the body is binary")
        value = part.value() if part.form is Form.JSON else strict_loads(part.data)
    except (ValueError, RecursionError) as error:
        problems.append(f"JSON parse error: {error}")
    else:
        for check in checks:
            problems += check.problems(value)
    text = _joined(problems)
    if text and policy.on_invalid == "reject":
        raise CommandError(ErrorCode.VALIDATION_FAILED, text)
    return text


def _joined(problems: list[str]) -> str:
    text = "; ".join(problems)
    if len(text) <= _TEXT_LIMIT:
        return text
    shown: list[str] = []
    for problem in problems:
        if sum(map(len, shown)) + 2 * len(shown) + len(problem) > _TEXT_LIMIT:
            break
        shown.append(problem)
    if not shown:
        return problems[0][:_TEXT_LIMIT]
    return "; ".join([*shown, f"and {len(problems) - len(shown)} more"])
