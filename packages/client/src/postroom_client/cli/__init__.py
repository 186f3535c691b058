"""``postroom``: the commands of the protocol from a shell."""

from .run import main as main
