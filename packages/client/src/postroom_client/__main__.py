"""``python -m postroom_client``: the command ``postroom``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
