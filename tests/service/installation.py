"""Installs the product on a test machine: its packages and their requirements under ``/opt/postroom``, the commands in
``/usr/bin``."""

from __future__ import annotations

import compileall
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from .machine import Machine

REPOSITORY: Final = Path(__file__).resolve().parents[2]
#: Where the interpreter that runs the tests is seen inside: its own place may be one that a service does not see.
PYTHON: Final = "/opt/python"
LIBRARY: Final = "/opt/postroom/lib"
#: The commands, and the functions that they call.
COMMANDS: Final = {
    "postroomd": "postroom_daemon.cli.postroomd",
    "postroom": "postroom_client.cli",
    "postroom-gateway": "postroom_gateway.cli",
    "postroom-cluster": "postroom_cluster.cli",
}
PROGRAM: Final = """\
import sys
sys.path.insert(0, "{library}")
sys.argv[0] = "{name}"
from {module} import main
sys.exit(main())
"""
WRAPPER: Final = """\
#!/bin/sh
LD_LIBRARY_PATH={python}/lib exec {python}/bin/python3 -I /opt/postroom/{name}.py "$@"
"""


def machine_with_product(*further: str) -> Machine:
    """A machine, not started yet, on which the daemon, the client and ``further`` distributions are installed."""
    machine = Machine(binds={Path(sys.base_prefix): Path(PYTHON)})
    library = machine.root / LIBRARY.lstrip("/")
    library.mkdir(parents=True)
    for known in _needed("postroom-daemon", *further):
        _copy(known, library)
    if not compileall.compile_dir(library, quiet=2, stripdir=str(machine.root)):
        raise RuntimeError(f"{library} cannot be compiled")
    for name, module in COMMANDS.items():
        machine.write(f"/opt/postroom/{name}.py", PROGRAM.format(library=LIBRARY, name=name, module=module))
        machine.write(f"/usr/bin/{name}", WRAPPER.format(python=PYTHON, name=name), 0o755)
    return machine


def _needed(*names: str) -> Iterator[Distribution]:
    """Distributions and all that they need, each once."""
    seen: set[str] = set()
    waiting = [*names]
    while waiting:
        known = distribution(waiting.pop())
        if known.name in seen:
            continue
        seen.add(known.name)
        yield known
        for line in known.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)


def _copy(known: Distribution, library: Path) -> None:
    """What a distribution has installed; of one of this repository, the sources as they are now."""
    source = REPOSITORY / "packages" / known.name.removeprefix("postroom-") / "src"
    if source.is_dir():
        shutil.copytree(source, library, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in known.files or ():
        wanted = library / file
        if ".." not in file.parts and "__pycache__" not in file.parts and file.suffix != ".pth":
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), wanted)
