"""Why a snapshot is not taken that is whole: reasons that only who reads many files can have."""

from __future__ import annotations

from typing import Final

#: It is there already, with just this content.
DUPLICATE: Final = "duplicate"
#: Another one is there already under its id.
OTHER_CONTENT: Final = "other_content"
