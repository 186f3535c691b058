"""Builds Debian packages from wheels with Debian's own tools, for the processor and the Python of this system."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from .errors import ReleaseError
from .manual.command import write_manual
from .packages import Package
from .relocated import make_environment

#: Where shells look for completions on Debian.
COMPLETIONS = {
    "bash": ("bash-completion/completions", "{}"),
    "zsh": ("zsh/vendor-completions", "_{}"),
    "fish": ("fish/vendor_completions.d", "{}.fish"),
}
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
TOOLS = ("dpkg-deb", "dpkg-gencontrol", "dpkg-shlibdeps")


@dataclass(frozen=True)
class Binary:
    """The contents of a Debian package: packages of the workspace, their programs, and further files."""

    name: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    #: Files below ``packaging/`` and where they are installed.
    files: tuple[tuple[str, str], ...] = ()
    #: Whether it contains the first configuration of the daemon, as ``postroomd init`` writes it.
    is_configured: bool = False
    #: The documents that it contains: a pattern below ``docs/``.
    documents: str = ""

    @property
    def prefix(self) -> Path:
        """The directory of its environment."""
        return Path("/usr/lib") / self.name

    @property
    def versioned_by(self) -> str:
        """The package of the workspace whose version it has."""
        return self.packages[0]


BINARIES = (
    Binary(
        "postroom",
        ("daemon", "client"),
        ("postroom", "postroomd"),
        (
            ("systemd/postroomd.service", "usr/lib/systemd/system/postroomd.service"),
            ("systemd/postroom.sysusers.conf", "usr/lib/sysusers.d/postroom.conf"),
            ("systemd/postroom.tmpfiles.conf", "usr/lib/tmpfiles.d/postroom.conf"),
            ("monitoring/postroom-alerts.yml", "usr/share/postroom/monitoring/postroom-alerts.yml"),
            ("monitoring/postroom-dashboard.json", "usr/share/postroom/monitoring/postroom-dashboard.json"),
        ),
        is_configured=True,
        documents="**/*.md",
    ),
    Binary("postroom-console", ("console",), ("postroom-console",)),
    Binary(
        "postroom-gateway",
        ("gateway",),
        ("postroom-gateway",),
        (
            ("systemd/postroom-gateway.service", "usr/lib/systemd/system/postroom-gateway.service"),
            ("systemd/postroom-gateway.socket", "usr/lib/systemd/system/postroom-gateway.socket"),
            ("systemd/postroom-gateway.sysusers.conf", "usr/lib/sysusers.d/postroom-gateway.conf"),
            ("gateway.toml", "usr/share/postroom-gateway/gateway.toml"),
        ),
        documents="gateway.md",
    ),
    Binary(
        "postroom-cluster",
        ("cluster",),
        ("postroom-cluster",),
        (
            ("systemd/postroom-cluster.service", "usr/lib/systemd/system/postroom-cluster.service"),
            ("cluster.toml", "usr/share/postroom-cluster/cluster.toml"),
        ),
        documents="cluster.md",
    ),
)


@dataclass(frozen=True)
class Source:
    """The settings of a build, common to all its packages."""

    packages: dict[str, Package]
    wheels: Path
    packaging: Path
    constraints: Path
    python: Path
    dated_s: int


def check_tools(python: Path) -> None:
    """Raises ``ReleaseError`` if this system cannot build packages."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        raise ReleaseError(f"{', '.join(missing)} not found; on Debian: apt-get install dpkg-dev")
    if not os.access(python, os.X_OK):
        raise ReleaseError(f"{python} is not an interpreter; on Debian: apt-get install python3 python3-venv")
    if not Path(os.path.realpath(python)).is_relative_to("/usr/bin"):
        raise ReleaseError(f"{python} does not come from a Debian package, so no package can depend on it")


def build_binary(binary: Binary, version: str, source: Source, workspace: Path, out: Path) -> Path:
    """Build one package; its path in ``out``. Raises ``ReleaseError``."""
    stage = workspace / "debian" / binary.name
    python = _minor(source.python)
    own = [source.packages[name] for name in binary.packages]
    needed = {one.name: one for package in own for one in _with_siblings(package, source)}
    outside = {requirement for one in needed.values() for requirement in one.outside}
    names = [one.distribution for one in own]
    make_environment(python, stage, binary.prefix, source.wheels, names, outside, source.constraints)
    _link_programs(binary, own, stage)
    for name, target in binary.files:
        _install(source.packaging / name, stage / target)
    if binary.is_configured:
        _write_configuration(stage, stage / binary.prefix.relative_to("/") / "bin" / "python3", workspace)
    write_manual(stage / "usr/share", list(binary.programs), COMPLETIONS)
    _write_documents(binary, version, list(needed.values()), source, stage)
    for path in (stage / "usr/share/man").glob("*/*"):
        _compress(path)
    _write_control(binary, version, source, workspace, python)
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(source.dated_s))
    out.mkdir(parents=True, exist_ok=True)
    run("dpkg-deb", "--root-owner-group", "--build", str(stage), str(out), environment=environment)
    (made,) = out.glob(f"{binary.name}_{version}_*.deb")
    return made


def run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run a tool; its output. Raises ``ReleaseError`` if it fails."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _minor(python: Path) -> Path:
    """The interpreter by its versioned name: python3 is another one in the next Debian."""
    version = run(str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    return Path("/usr/bin") / f"python{version}"


def _with_siblings(package: Package, source: Source) -> list[Package]:
    below = [one for name in package.siblings for one in _with_siblings(source.packages[name], source)]
    return [package, *below]


def _link_programs(binary: Binary, own: list[Package], stage: Path) -> None:
    (stage / "usr/bin").mkdir(parents=True)
    for script in (script for package in own for script in package.scripts):
        target = binary.prefix / "bin" / script
        if not (stage / target.relative_to("/")).exists():
            raise ReleaseError(f"{target} was not installed")
        (stage / "usr/bin" / script).symlink_to(os.path.relpath(target, "/usr/bin"))


def _install(file: Path, target: Path) -> None:
    if not file.exists():
        raise ReleaseError(f"{file} is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def _write_configuration(stage: Path, python: Path, workspace: Path) -> None:
    """The first configuration, by the daemon that is in the package.

    It is no conffile: dpkg would stop in the middle of an upgrade to ask about one that was changed, on a device where
    nobody answers.
    """
    run(str(python), "-I", "-B", "-m", "postroom_daemon", "init", "--root", str(workspace / "root"))
    _install(workspace / "root" / "config.json", stage / "usr/share/postroom/config.json")


def _write_documents(binary: Binary, version: str, packages: list[Package], source: Source, stage: Path) -> None:
    directory = stage / "usr/share/doc" / binary.name
    directory.mkdir(parents=True)
    if binary.documents:
        documents = source.packaging.parent / "docs"
        for path in documents.glob(binary.documents):
            _install(path, directory / path.relative_to(documents))
    for package in packages:
        name = "changelog" if package.name == binary.versioned_by else f"changes-{package.name}.md"
        shutil.copyfile(package.directory / "CHANGELOG.md", directory / name)
        _compress(directory / name)
    (directory / "changelog.Debian").write_text(_changelog(binary, version, source), "utf-8")
    _compress(directory / "changelog.Debian")
    licence = (packages[0].directory / "LICENSE").read_text("utf-8")
    text = "\n".join(f" {line}" if line else " ." for line in licence.splitlines())
    _install(source.packaging / "debian/lintian-overrides", stage / "usr/share/lintian/overrides" / binary.name)
    (directory / "copyright").write_text((source.packaging / "debian/copyright").read_text("utf-8") + text + "\n")


def _changelog(binary: Binary, version: str, source: Source) -> str:
    maintainer = re.search(r"^Maintainer: (.+)$", (source.packaging / "debian/control").read_text(), re.MULTILINE)
    assert maintainer
    lines = f"  * What has changed is told beside this, in changelog.gz and changes-*.gz.\n\n -- {maintainer[1]}"
    return f"postroom ({version}) unstable; urgency=medium\n\n{lines}  {formatdate(source.dated_s)}\n"


def _compress(path: Path) -> None:
    """Like ``gzip -9n``."""
    if path.is_symlink():
        return
    data = gzip.compress(path.read_bytes(), 9, mtime=0)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(data)


def _write_control(binary: Binary, version: str, source: Source, workspace: Path, python: Path) -> None:
    """``DEBIAN/``: control by dpkg-gencontrol, with the libraries that dpkg-shlibdeps finds; sums and scripts."""
    stage = workspace / "debian" / binary.name
    control = stage / "DEBIAN"
    control.mkdir()
    shutil.copyfile(source.packaging / "debian/control", workspace / "debian/control")
    (workspace / "debian/changelog").write_text(_changelog(binary, version, source), "utf-8")
    variables = workspace / "debian" / f"{binary.name}.substvars"
    variables.write_text(f"python:Depends={python.name}\n")
    libraries = [str(path) for path in sorted(stage.rglob("*.so*")) if path.is_file()]
    if libraries:
        run("dpkg-shlibdeps", f"-T{variables}", "--warnings=0", *libraries, cwd=workspace)
    _normalise(stage)
    run("dpkg-gencontrol", f"-p{binary.name}", f"-P{stage}", f"-T{variables}", f"-v{version}", cwd=workspace)
    sums = [
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(stage)}"
        for path in sorted(stage.rglob("*"))
        if path.is_file() and not path.is_symlink() and control not in path.parents
    ]
    (control / "md5sums").write_text("\n".join(sums) + "\n")
    for script in SCRIPTS:
        path = source.packaging / "debian" / f"{binary.name}.{script}"
        if path.exists():
            shutil.copyfile(path, control / script)
            (control / script).chmod(0o755)


def _normalise(stage: Path) -> None:
    """Set the modes of all files, independently of the umask. Only programs are executable."""
    for path in stage.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    stage.chmod(0o755)
