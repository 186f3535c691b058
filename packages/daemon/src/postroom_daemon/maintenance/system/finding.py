"""What a look at a root's permissions comes to."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ...platform.logs.records import escaped


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be. ``path`` is what it is about (of an account: its name), ``mend`` what to
    do, as root: a command of a shell, where one line is enough."""

    kind: str
    path: str
    problem: str
    mend: str

    def to_json(self) -> dict[str, str]:
        """The finding as ``--json`` prints it."""
        return asdict(self)

    @property
    def text(self) -> str:
        """For people, in two lines: names in it may be anybody's."""
        return f"{escaped(self.path)}: {escaped(self.problem)}\n    {escaped(self.mend)}"
