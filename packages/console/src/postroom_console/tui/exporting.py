"""The key that writes a snapshot of the device."""

from __future__ import annotations

from pathlib import Path

from ..data.text import clean
from ..export.action import snapshot
from ..export.redaction import Redaction
from ..i18n import tr
from ..places import Places
from .acting import Acting
from .screens.confirm import Ask, Field
from .view import View


class Exporting(Acting):
    """The part of the application that exports. ``places`` are those of the daemon that is shown; None where none is
    there, as in a recording."""

    places: Places | None = None
    save_root: Path

    def action_snapshot(self) -> None:
        """Ask for the folder and for what is left out, then write it. Nothing of the daemon is changed, so one may also
        where one may only look."""
        places = self.places
        if places is None or not self.source.is_live:
            self.say(tr("there is no daemon to be exported"))
            return
        if not isinstance(self.screen, View):
            return

        def answered(told: dict[str, str] | None) -> None:
            if told is None:
                return
            choices = [one.value for one in Redaction]
            if told["redact"] not in choices:
                self.say(tr("left out can be: {choices}").format(choices=", ".join(choices)))
                return
            folder = self.save_root / Path(told["folder"]).expanduser()
            self._carry_out(snapshot(places, folder, Redaction(told["redact"])))

        fields = [
            Field("folder", tr("to the folder:"), clean(str(self.save_root))),
            Field("redact", tr("left out (payload, attributes or none):"), Redaction.PAYLOAD.value),
        ]
        self.push_screen(Ask(tr("SNAPSHOT of the device"), fields), answered)
