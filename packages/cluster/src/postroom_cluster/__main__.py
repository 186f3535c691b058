"""``python -m postroom_cluster`` is ``postroom-cluster``."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="postroom-cluster")
