"""``python -m postroom_console`` is ``postroom-console``."""

from .cli import main

if __name__ == "__main__":  # to import it, as a look at all modules does, starts nothing
    main(prog_name="postroom-console")
