"""``python -m postroom_gateway`` is ``postroom-gateway``."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="postroom-gateway")
