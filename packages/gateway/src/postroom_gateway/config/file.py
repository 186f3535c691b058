"""Reads the configuration file. Nothing in it is ignored or corrected: what is wrong is an error that names the key."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from postroom_common.errors import ConfigurationError
from postroom_common.protocol import is_id
from postroom_common.secret_file import read_secret
from postroom_common.sections import load_toml, read_section, read_table, refuse_unknown, table_of
from postroom_common.settings import shown

from .settings import DIALECTS, NAMED_SECTIONS, SECTIONS, DoorSection, PrincipalSection, Settings

#: Where the configuration is, unless a flag says otherwise.
DEFAULT_FILE: Final = Path("/etc/postroom/gateway.toml")


def load(path: Path) -> Settings:
    """The configuration in a file. Raises ``ConfigurationError``, which names the file and the key."""
    return read(load_toml(path), path)


def read(tree: Mapping[str, Any], path: Path) -> Settings:
    """The configuration in a parsed file. Relative paths are below the file's directory. Raises
    ``ConfigurationError``."""
    refuse_unknown(tree, {*SECTIONS, *NAMED_SECTIONS}, f"{path}: ")
    sections: dict[str, Any] = {
        name: read_section(kind, read_table(tree.get(name, {}), f"{path}: {name}"), f"{path}: {name}")
        for name, kind in SECTIONS.items()
    }
    base = path.parent
    settings = Settings(**sections)
    settings = replace(
        settings,
        daemon=replace(settings.daemon, socket=base / settings.daemon.socket),
        principals=_principals(
            read_table(tree.get("principals", {}), f"{path}: principals"), f"{path}: principals", base
        ),
        doors=_doors(read_table(tree.get("doors", {}), f"{path}: doors"), f"{path}: doors", base),
    )
    if not is_id(settings.daemon.client_id):
        raise ConfigurationError(
            f"{path}: daemon.client_id: expected a client id, got {shown(settings.daemon.client_id)}"
        )
    _check_addresses(settings, path)
    for name, door in settings.doors.items():
        if door.authentication != "none" and not _can_prove(settings.principals, door.authentication):
            proof = "a token" if door.authentication == "tokens" else "certificate_sha256"
            raise ConfigurationError(
                f"{path}: doors.{name}.authentication: is {door.authentication}, but no principal has {proof}"
            )
    return settings


def _principals(tables: Mapping[str, Any], where: str, base: Path) -> dict[str, PrincipalSection]:
    principals = {}
    owners: dict[bytes, str] = {}
    for name, table in tables.items():
        here = f"{where}.{name}"
        if not is_principal_name(name):
            raise ConfigurationError(f"{here}: expected a name without slashes and control characters")
        one = read_section(PrincipalSection, read_table(table, here), here)
        if bool(one.token_sha256) and bool(one.token_file):
            raise ConfigurationError(f"{here}: has token_sha256 and token_file: give one of them")
        digest = bytes.fromhex(one.token_sha256) if one.token_sha256 else None
        if one.token_file:
            digest = hashlib.sha256(read_secret(base / one.token_file, f"{here}.token_file")).digest()
        certificate = bytes.fromhex(one.certificate_sha256) if one.certificate_sha256 else None
        if not digest and not certificate:
            raise ConfigurationError(f"{here}: expected one of token_sha256, token_file and certificate_sha256")
        for proof in (digest, certificate):
            if proof and owners.setdefault(proof, name) != name:
                raise ConfigurationError(f"{here}: has the same token or certificate as {owners[proof]}")
        principals[name] = replace(one, token_digest=digest, certificate_digest=certificate)
    return principals


def is_principal_name(name: str) -> bool:
    """Whether a principal can have this name."""
    return is_id(f"token:{name}") and name != "*"


def _doors(tables: Mapping[str, Any], where: str, base: Path) -> dict[str, DoorSection]:
    return {
        name: _door(name, read_table(table, f"{where}.{name}"), f"{where}.{name}", base)
        for name, table in tables.items()
    }


def _door(name: str, table: dict[str, Any], where: str, base: Path) -> DoorSection:
    if not _is_door_name(name):
        raise ConfigurationError(
            f"{where}: expected a name of 1 to 32 of a-z, 0-9 and -, beginning with a letter; not mailbox or lane"
        )
    refuse_unknown(table, {*table_of(DoorSection), "options"}, f"{where}.")
    options = read_table(table.pop("options", {}), f"{where}.options")
    door = read_section(DoorSection, table, where, name=name, options=options)
    dialect = door.dialect or name
    if dialect not in DIALECTS:
        names = ", ".join(DIALECTS)
        raise ConfigurationError(f"{where}.dialect: expected one of {names}, because the door's name is none of them")
    door = replace(door, dialect=dialect, port=DIALECTS[dialect].port if door.port == -1 else door.port)
    door = replace(
        door,
        tls_certificate=_below(base, door.tls_certificate),
        tls_key=_below(base, door.tls_key),
        tls_client_ca=_below(base, door.tls_client_ca),
    )
    if bool(door.tls_certificate) != bool(door.tls_key):
        raise ConfigurationError(f"{where}: tls_certificate and tls_key belong together: give both or none")
    if door.authentication == "certificates" and not (door.tls_certificate and door.tls_client_ca):
        raise ConfigurationError(
            f"{where}.authentication: certificates need tls_certificate, tls_key and tls_client_ca"
        )
    if door.authentication == "tokens" and DIALECTS[dialect].transport == "stream":
        raise ConfigurationError(f"{where}.authentication: {dialect} has no place for tokens: use certificates")
    is_local = is_loopback(door.address, f"{where}.address")
    if door.authentication == "none" and not door.allow_anonymous and not is_local:
        raise ConfigurationError(
            f"{where}: anybody who reaches {door.address} could use this door: set authentication, or a loopback"
            " address such as 127.0.0.1, or allow_anonymous = true if that is what you want"
        )
    return door


def _below(base: Path, path: str) -> str:
    return str(base / path) if path else ""


def is_loopback(address: str, where: str) -> bool:
    """Whether only this machine reaches an address. Raises ``ConfigurationError``, with the key ``where``, unless it is
    an IP address or ``localhost``."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise ConfigurationError(f"{where}: expected an IP address or localhost, got {shown(address)}") from None


def _is_door_name(name: str) -> bool:
    is_word = name.isascii() and name.replace("-", "").isalnum() and name == name.lower() and name[:1].isalpha()
    return is_word and len(name) <= 32 and name not in ("mailbox", "lane")


def _can_prove(principals: Mapping[str, PrincipalSection], authentication: str) -> bool:
    if authentication == "tokens":
        return any(one.token_digest for one in principals.values())
    return any(one.certificate_digest for one in principals.values())


def _check_addresses(settings: Settings, path: Path) -> None:
    observe = settings.observe
    used = {(observe.address, observe.port): "observe"} if observe.enabled else {}
    if observe.enabled and not is_loopback(observe.address, f"{path}: observe.address"):
        raise ConfigurationError(
            f"{path}: observe.address: expected a loopback address such as 127.0.0.1: it has no authentication"
        )
    for name, door in settings.doors.items():
        if door.enabled and door.port and (other := used.setdefault((door.address, door.port), name)) != name:
            raise ConfigurationError(f"{path}: doors.{name}.port: {door.port} is also the port of {other}")
