"""``python -m postroom_pipeline``: the command."""

from .cli import main

main(prog_name="postroom-pipeline")
