"""``python -m postroom_client.cli``: the command ``postroom``."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
