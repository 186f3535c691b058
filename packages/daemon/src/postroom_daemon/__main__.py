"""``python -m postroom_daemon`` is ``postroomd``."""

from .cli import main

main(prog_name="postroomd")
