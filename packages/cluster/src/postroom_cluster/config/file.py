"""Reads the configuration file. Nothing in it is ignored or corrected: what is wrong is an error that names the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from postroom_common.errors import ConfigurationError
from postroom_common.sections import load_toml, read_section, read_table, refuse_unknown
from postroom_common.settings import shown

from .settings import SECTIONS, NatsSection, Settings

#: Where the configuration is, unless a flag says otherwise.
DEFAULT_FILE: Final = Path("/etc/postroom/cluster.toml")
_PATHS: Final = ("tls_ca", "tls_certificate", "tls_key", "password_file", "token_file", "credentials", "nkey")
#: Ways to sign in; at most one is used.
_SIGN_IN: Final = ("user", "token_file", "credentials", "nkey")
_SCHEMES: Final = ("nats", "tls")


def load(path: Path) -> Settings:
    """The configuration in a file. Raises ``ConfigurationError``, which names the file and the key."""
    return read(load_toml(path), path)


def read(tree: Mapping[str, Any], path: Path) -> Settings:
    """The configuration in a parsed file. Relative paths are below the file's directory. Raises
    ``ConfigurationError``."""
    refuse_unknown(tree, SECTIONS, f"{path}: ")
    sections: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        table, where = read_table(tree.get(name, {}), f"{path}: {name}"), f"{path}: {name}"
        further = {"servers": _servers(table.pop("servers"), where)} if name == "nats" and "servers" in table else {}
        sections[name] = read_section(kind, table, where, **further)
    settings = Settings(**sections)
    for key in ("name", "node"):
        if not getattr(settings.cluster, key):
            raise ConfigurationError(f"{path}: cluster.{key}: is missing")
    _check_nats(settings.nats, f"{path}: nats")
    base = path.parent
    paths: dict[str, Any] = {key: str(base / value) for key in _PATHS if (value := getattr(settings.nats, key))}
    return replace(
        settings,
        daemon=replace(settings.daemon, socket=base / settings.daemon.socket),
        nats=replace(settings.nats, **paths),
    )


def _servers(value: Any, where: str) -> tuple[str, ...]:
    if type(value) is not list or not value:
        raise ConfigurationError(f"{where}.servers: expected a list of addresses, got {shown(value)}")
    for one in value:
        parts = urlsplit(one) if type(one) is str else None
        if not parts or parts.scheme not in _SCHEMES or not parts.hostname or "@" in parts.netloc:
            raise ConfigurationError(
                f"{where}.servers: expected addresses such as nats://10.0.0.1:4222, without a password,"
                f" got {shown(one)}"
            )
    return tuple(value)


def _check_nats(nats: NatsSection, where: str) -> None:
    if bool(nats.tls_certificate) != bool(nats.tls_key):
        raise ConfigurationError(f"{where}: tls_certificate and tls_key belong together: give both or none")
    if bool(nats.user) != bool(nats.password_file):
        raise ConfigurationError(f"{where}: user and password_file belong together: give both or none")
    used = [key for key in _SIGN_IN if getattr(nats, key)]
    if len(used) > 1:
        raise ConfigurationError(f"{where}: has {' and '.join(used)}: give one of them")
