"""Which rows of its tables a row of a report is made of: what is rebuilt when some have changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Scope:
    """A report has one. Whatever it says of other rows than these has to follow from these alone."""

    #: Whether a row is made of rows of its own device only.
    by_device: bool = True
    #: The tables of which a row has the rows of its own ``day`` only; none if it may have those of any day.
    by_day_of: tuple[str, ...] = ()
    #: So many days before its own count as well.
    days_before: int = 0
    #: Tables without days: a change in one of them may change all days of a device.
    any_day_if: tuple[str, ...] = ()

    @property
    def described(self) -> str:
        """What is rebuilt when rows of a device have changed, for people."""
        if not self.by_device:
            return "all rows"
        if not self.by_day_of:
            return "the device's rows"
        days = f", and of the {self.days_before} days after it" if self.days_before else ""
        more = f"; all of the device's rows if {' or '.join(f'`{name}`' for name in self.any_day_if)} changes"
        return f"the device's rows of that day{days}{more if self.any_day_if else ''}"


OF_FLEET: Final = Scope(by_device=False)
OF_DEVICE: Final = Scope()
