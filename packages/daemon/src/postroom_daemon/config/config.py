"""The daemon's configuration, resolved once: settings from flags, environment and file, and the rest of the file.

Precedence, highest first: flag, environment variable, configuration file, default. Relative paths are relative to the
root directory, wherever they were given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from postroom_common.errors import ConfigurationError
from postroom_common.policy import Layer
from postroom_common.settings import Setting

from ..platform.accounts import Accounts
from ..policy.access_rules import AccessRules
from ..policy.policies import PatternConfig, QueueConfig
from ..policy.quotas import QuotaRule
from .access_file import read_users
from .file import CONFIG_NAME, ConfigFile, read_config_file, warn_of_clashes
from .settings import ATTRIBUTES, BACKENDS, MODES, SETTINGS, Settings, is_path_or_none

#: Tells clients where the mailbox is; this daemon may have another.
CLIENTS_VARIABLE: Final = "POSTROOM_IPC_ROOT"


@dataclass(frozen=True)
class Config:
    """The resolved configuration; immutable.

    ``sources`` has the origin of each key's value: ``default``, ``file``, ``environment NAME``, ``flag --NAME``, or
    another setting that implies it. ``file`` is None without a configuration file. ``accounts`` resolves the users and
    groups that are named."""

    root: Path
    settings: Settings
    defaults: Layer
    queues: Mapping[str, QueueConfig]
    warnings: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    patterns: tuple[PatternConfig, ...] = ()
    access: AccessRules = field(default_factory=AccessRules)
    quotas: tuple[QuotaRule, ...] = ()
    accounts: Accounts = field(default_factory=Accounts, compare=False, repr=False)

    @property
    def quarantine_root(self) -> Path:
        """The directory for damaged bytes."""
        return self.root / "quarantine"

    def check_to_run(self) -> None:
        """Raise ``ConfigurationError`` for a configuration with which tools may work, but a daemon must not start."""
        for problem in self.access.open_denials(self.accounts):
            raise ConfigurationError(f"{self.file}: {problem}")

    def values(self) -> dict[str, Any]:
        """Every setting's value by key, for JSON."""
        values = {key: getattr(self.settings, name) for key, name in ATTRIBUTES.items()}
        return {key: _as_json(value) for key, value in values.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return int(value) if type(value) is float and value.is_integer() else value


def load(root: Path, config_file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Config:
    """Load the configuration of the root directory ``root``.

    ``config_file`` must exist if it is given. Otherwise ``config.json`` in ``root`` is read if it exists; a dangling
    link is an error, because its target may have said who may do what. ``flags`` maps keys of ``SETTINGS`` to texts. An
    empty environment variable counts as unset.

    Raises ``ConfigurationError`` with the source, the key and what is expected.
    """
    warnings: list[str] = []
    root = Path(os.path.realpath(root))  # /var/lib/postroom is a link under systemd's DynamicUser
    path = config_file or root / CONFIG_NAME
    is_link = path.is_symlink()
    if is_link:  # a package may link to /etc: a replacement must go there
        path = Path(os.path.realpath(path))
    content = ConfigFile()
    read = config_file is not None or is_link or path.exists()
    if read:
        content = read_config_file(path, SETTINGS, warnings.append)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, setting in SETTINGS.items():
        value: Any = setting.default
        source = "default"
        if key in flags:
            source = f"flag {setting.flag}"
            value = _parse(setting, flags[key], f"{source}: {key}", warnings)
        elif setting.by_variable and environ.get(setting.environment):
            source = f"environment {setting.environment}"
            value = _parse(setting, environ[setting.environment], f"{source}: {key}", warnings)
        elif key in content.values:
            source = "file"
            value = setting.check(content.values[key], f"{path}: {key}", warnings.append)
        values[key] = _below(root, setting, value)
        sources[key] = source
    _warn_of_unknown_variables(environ, values["ipc.root"], warnings)
    _choose_backend(values, sources, warnings)
    _check_directories(values)
    _check_metrics_file(values, root, path)
    defaults = dict(content.defaults)
    if sources["lease.visibilityTimeoutSec"] != "default":
        defaults.setdefault("visibilityTimeoutSec", values["lease.visibilityTimeoutSec"])
    warn_of_clashes(defaults, content.queues, content.patterns, warnings.append)
    _check_cluster(values)
    if values["journal.durability"] != "commit":
        warnings.append("journal.durability: answered requests can be lost at a power cut unless it is commit")
    accounts = Accounts()
    source = sources["gateway.users"]
    gateways = read_users(values["gateway.users"], f"{path if source == 'file' else source}: gateway.users")
    access = replace(content.access, gateways=gateways)
    warnings += access.unknown(accounts)
    settings = Settings(**{ATTRIBUTES[key]: value for key, value in values.items()})
    file = path if read else None
    return Config(
        root,
        settings,
        defaults,
        content.queues,
        tuple(warnings),
        sources,
        file,
        content.patterns,
        access,
        content.quotas,
        accounts,
    )


def _check_cluster(values: Mapping[str, Any]) -> None:
    """What a member of a cluster cannot do without."""
    if values["cluster.enabled"] and values["journal.durability"] != "commit":
        raise ConfigurationError("cluster.enabled: journal.durability must be commit")


def _below(root: Path, setting: Setting, value: Any) -> Any:
    """A value with relative paths resolved against ``root``."""
    if setting.type is Path:
        return Path(os.path.normpath(root / value))
    return os.path.normpath(root / value) if value and is_path_or_none(setting) else value


def _parse(setting: Setting, text: str, where: str, warnings: list[str]) -> Any:
    if setting.type is float and text.strip().lstrip("+-").lower() in ("nan", "inf", "infinity"):
        raise ConfigurationError(f"{where}: {text} is not allowed; expected {setting.expected}")
    return setting.parse(text, where, warnings.append)


def _warn_of_unknown_variables(environ: Mapping[str, str], ipc_root: Path, warnings: list[str]) -> None:
    environments = {one.environment for one in SETTINGS.values()}
    groups = tuple(f"POSTROOM_{key.partition('.')[0].upper()}_" for key in SETTINGS if "." in key)
    for name in sorted(environ):
        if name == CLIENTS_VARIABLE:
            if environ[name] and os.path.realpath(environ[name]) != os.path.realpath(ipc_root):
                text = f"names another mailbox than {ipc_root} for clients; the daemon uses ipc.root, or --ipc-root"
                warnings.append(f"environment {name}: {text}")
        elif name.startswith(groups) and name not in environments:
            warnings.append(f"environment {name}: no setting has this name; ignored")


def _choose_backend(values: dict[str, Any], sources: dict[str, str], warnings: list[str]) -> None:
    by_mode = MODES[values["mode"]]
    chosen = BACKENDS[values["backend"]]
    if sources["mode"] != "default" and by_mode != chosen:
        if sources["backend"] == "default":
            chosen, sources["backend"] = by_mode, f"mode ({sources['mode']})"
        else:
            warnings.append(f"mode: {values['mode']} disagrees with backend {chosen}; backend wins")
    values["backend"] = chosen


def _check_directories(values: Mapping[str, Any]) -> None:
    # Each of these directories is scanned and pruned by one part of the daemon, which owns every file in it.
    for group in (
        ("ipc.requestsDir", "ipc.responsesDir", "ipc.deadDir", "ipc.heldDir"),
        tuple(f"filesystem.{folder}Dir" for folder in ("inbox", "processing", "delayed", "archive", "dlq")),
        (
            "ipc.root",
            "journal.root",
            "traffic.root",
            "filesystem.root",
            "hybrid.payloadRoot",
            "logs.root",
            "snapshots.root",
            "paths.logRoot",
        ),
    ):
        taken: dict[Any, str] = {}
        for key in group:
            other = taken.setdefault(str(values[key]), key)
            if other != key:
                raise ConfigurationError(f"{key}: {values[key]} is already {other}; give each its own directory")


def _check_metrics_file(values: Mapping[str, Any], root: Path, config_file: Path) -> None:
    """Raise ``ConfigurationError`` if ``metrics.file``, which is overwritten and removed, is a file that is needed."""
    if not values["metrics.file"]:
        return
    file = Path(os.path.realpath(os.path.dirname(values["metrics.file"])), os.path.basename(values["metrics.file"]))
    keys = ["ipc.root", "journal.root", "traffic.root", "filesystem.root", "hybrid.payloadRoot", "snapshots.root"]
    keys += ["logs.root"]
    database = os.path.realpath(values["sqlite.dbPath"])
    needed = [*(os.path.realpath(values[key]) for key in keys), os.path.realpath(config_file), str(root / "quarantine")]
    for place in (*needed, database, f"{database}-wal", f"{database}-shm"):
        if file.is_relative_to(place):
            text = "it is overwritten, and removed once another file is configured: choose another path"
            raise ConfigurationError(f"metrics.file: the daemon needs {file}, or its directory; {text}")
