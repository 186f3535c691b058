"""A virtual environment that is made in one directory and used in another, the prefix of a package."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

from .errors import ReleaseError
from .installing import install_wheels

#: Compiled at build time, because users may not write to the prefix; never compared with the source again, so that the
#: dates of files do not matter.
_COMPILE = ("-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")


def make_environment(
    python: Path, stage: Path, prefix: Path, wheels: Path, names: list[str], outside: set[str], constraints: Path
) -> None:
    """Make an environment at ``stage / prefix`` that will be at ``prefix``, and install packages into it.

    ``python`` is the interpreter that it will find there. Only the programs of the named packages are kept. Raises
    ``ReleaseError``.
    """
    home = stage / prefix.relative_to("/")
    _run(str(python), "-m", "venv", "--without-pip", str(home))
    install_wheels(home / "bin" / "python", wheels, names, outside, constraints)
    (library,) = home.glob("lib/python*")
    for path in (*home.glob("include"), *home.glob("lib64"), *home.glob("share")):
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    _keep_programs(library / "site-packages", home, prefix, names)
    settings = (home / "pyvenv.cfg").read_text().splitlines()
    kept = [line for line in settings if not line.startswith("command ")]
    (home / "pyvenv.cfg").write_text("\n".join(kept) + "\n")
    _run(str(home / "bin" / "python"), *_COMPILE, "-s", str(stage), "-p", "/", str(library))
    check_relocated(home, stage)


def _keep_programs(packages: Path, home: Path, prefix: Path, names: list[str]) -> None:
    """Give the programs of the named packages the interpreter of the prefix, apart from the caller's Python settings;
    remove those of other packages."""
    programs = set()
    for record in packages.glob("*.dist-info/RECORD"):
        is_ours = record.parent.name.partition("-")[0].replace("_", "-") in names
        lines = []
        for line in record.read_text("utf-8").splitlines():
            name = line.rsplit(",", 2)[0]
            if not name.startswith("../../../bin/"):
                lines.append(line)
            elif is_ours:
                program = home / "bin" / Path(name).name
                _, _, code = program.read_bytes().partition(b"\n")
                data = f"#!{prefix}/bin/python3 -I\n".encode() + code
                program.write_bytes(data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                lines.append(f"{name},sha256={digest},{len(data)}")
                programs.add(program)
        record.write_text("\n".join(lines) + "\n", "utf-8")
    for path in (home / "bin").iterdir():
        if path not in programs and not path.name.startswith("python"):
            path.unlink()


def check_relocated(home: Path, stage: Path) -> None:
    """Raises ``ReleaseError`` if a file contains the build directory, or a link points there."""
    place = str(stage).encode()
    for path in home.rglob("*"):
        if path.is_symlink():
            target = str(path.readlink())
            if target.startswith(str(stage)) or (target.startswith("/") and not Path(target).exists()):
                raise ReleaseError(f"{path.relative_to(stage)} points to {target}")
        elif path.is_file() and place in path.read_bytes():
            raise ReleaseError(f"{path.relative_to(stage)} contains the build directory {stage}")


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise ReleaseError(f"{' '.join(command[:4])}: {run.stderr.strip() or run.stdout.strip()}")
