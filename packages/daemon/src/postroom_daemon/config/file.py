"""The configuration file: strict JSON with settings, policies, queues and access rules."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from postroom_common.codec import strict_loads
from postroom_common.errors import ConfigurationError
from postroom_common.policy import Layer, Policy, dlq_name, read_layer
from postroom_common.policy_keys import POLICY_KEYS
from postroom_common.protocol import queue_name_problem
from postroom_common.settings import Setting, flatten, shown

from ..platform.files import READ_FLAGS, Files
from ..policy.access_rules import AccessRules
from ..policy.policies import PatternConfig, QueueConfig, first_match
from ..policy.quotas import QuotaRule
from ..policy.schema import Pattern, check_schema
from .access_file import read_access, read_quotas
from .tree import expect, refuse_unknown_keys

CONFIG_NAME: Final = "config.json"
#: Maximum size of a configuration file.
BYTES_LIMIT: Final = 16 * 1024 * 1024

Warn = Callable[[str], None]

_VALUE_TYPES: Final = ("string", "number", "boolean", "array", "object", "null")
#: Rules of a message schema: the key that a rule type needs beside ``field`` and ``type``, and the type of its value.
SCHEMA_RULES: Final[dict[str, tuple[str, str] | None]] = {
    "required": None,
    "type": ("expectedType", "string"),
    "minLength": ("value", "number"),
    "maxLength": ("value", "number"),
    "minValue": ("value", "number"),
    "maxValue": ("value", "number"),
    "pattern": ("value", "string"),
    "enum": ("values", "array of strings"),
    "custom": ("validator", "string"),
}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a file: settings by key (types not yet checked), the default policy, single queues, queues by
    pattern in the order of the file, access rules, and quotas."""

    values: Mapping[str, Any] = field(default_factory=dict)
    defaults: Layer = field(default_factory=dict)
    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    patterns: tuple[PatternConfig, ...] = ()
    access: AccessRules = field(default_factory=AccessRules)
    quotas: tuple[QuotaRule, ...] = ()


def read_config_file(path: Path, table: Mapping[str, Setting], warn: Warn) -> ConfigFile:
    """Read the file ``path`` with the settings of ``table``.

    Raises ``ConfigurationError`` if it cannot be read, is not strict JSON, or has an unknown key or a wrong type.
    """
    text = _text_of(path)
    try:
        tree = strict_loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not valid JSON: {_no_number_in(text) or error}") from None
    if type(tree) is not dict:
        raise ConfigurationError(f"{path}: expected object, got {shown(tree)}")
    values = flatten(tree, table, f"{path}: ", elsewhere=("policyDefaults", "queues", "access", "clients", "quotas"))
    defaults = expect(tree.get("policyDefaults", {}), dict, f"{path}: policyDefaults")
    layer = _read_policy(defaults, f"{path}: policyDefaults", warn)
    queues, patterns = _read_queues(tree.get("queues", []), f"{path}: queues", warn)
    quotas = read_quotas(tree.get("quotas", []), f"{path}: quotas")
    return ConfigFile(values, layer, queues, patterns, read_access(tree, str(path)), quotas)


def _text_of(path: Path) -> bytes:
    """The bytes of a file. A daemon that reloads must neither block on a pipe nor fill its memory."""
    try:
        with open(os.open(path, READ_FLAGS & ~os.O_NOFOLLOW), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigurationError(f"{path}: is not a regular file")
            text = file.read(BYTES_LIMIT + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    if len(text) > BYTES_LIMIT:
        raise ConfigurationError(f"{path}: is larger than {BYTES_LIMIT:,} bytes")
    return text


def warn_of_clashes(
    defaults: Layer, queues: Mapping[str, QueueConfig], patterns: tuple[PatternConfig, ...], warn: Warn
) -> None:
    """Warn of policies with swapped delays, and of queues with the name of a dead-letter address."""
    layers = {f"queue {name}": _under(patterns, name) | one.policy for name, one in queues.items()}
    layers |= {f"pattern {one.text}": one.policy for one in patterns}
    for where, layer in {"policyDefaults": {}, **layers}.items():
        delays = {key.key: key.default for key in POLICY_KEYS} | defaults | layer
        initial, longest = delays["retry.initialDelaySec"], delays["retry.maxDelaySec"]
        if initial > longest:
            shown_delays = f"retry.initialDelaySec {initial:.15g} is above retry.maxDelaySec {longest:.15g}"
            warn(f"{where}: {shown_delays}; they are swapped")
    for name in queues:
        dead = dlq_name(name, Policy.from_layers(defaults, layers[f"queue {name}"]))
        if dead in queues:
            warn(f"queue {name}: its dead letters are addressed as {dead}, which is also a queue; rename one of them")


def _under(patterns: tuple[PatternConfig, ...], queue: str) -> Layer:
    match = first_match(patterns, queue)
    return match.policy if match else {}


def _no_number_in(text: bytes) -> str | None:
    """The error for a text with NaN or an infinity, which many programs write although JSON has neither; else None."""
    constants: list[str] = []
    try:
        json.loads(text, parse_constant=constants.append)
    except (ValueError, RecursionError):
        pass  # there is another error, perhaps after the constant
    return f"{constants[0]} is not allowed; give a number" if constants else None


def _read_policy(policy: Mapping[str, Any], where: str, warn: Warn) -> Layer:
    layer = read_layer(policy, where, warn)
    check_schema(layer, where)
    return layer


def _read_queues(entries: Any, where: str, warn: Warn) -> tuple[dict[str, QueueConfig], tuple[PatternConfig, ...]]:
    queues: dict[str, QueueConfig] = {}
    patterns: dict[str, PatternConfig] = {}
    for number, entry in enumerate(expect(entries, list, where)):
        place = f"{where}[{number}]"
        expect(entry, dict, place)
        refuse_unknown_keys(entry, ("name", "pattern", "policy", "messageSchema"), place)
        if "name" in entry and "pattern" in entry:
            raise ConfigurationError(f"{place}: has a name and a pattern; give it one of them")
        kind = "pattern" if "pattern" in entry else "name"
        word = expect(entry.get(kind), str, f"{place}.{kind}")
        problem = queue_name_problem(word) if kind == "name" else None
        if problem:
            raise ConfigurationError(f"{place}.name: {shown(word)} {problem}")
        if word in (queues if kind == "name" else patterns):
            raise ConfigurationError(f"{place}.{kind}: {shown(word)} occurs twice; give it one entry")
        pattern = _pattern(word, f"{place}.pattern") if kind == "pattern" else None
        policy = _read_policy(expect(entry.get("policy", {}), dict, f"{place}.policy"), f"{place}.policy", warn)
        schema = entry.get("messageSchema")
        if "messageSchema" in entry:
            _check_rules(schema, f"{place}.messageSchema", warn)
        if pattern:
            patterns[word] = PatternConfig(word, pattern, policy, schema)
        else:
            queues[word] = QueueConfig(policy, schema)
    return queues, tuple(patterns.values())


def _check_rules(schema: Any, where: str, warn: Warn) -> None:
    expect(schema, dict, where)
    refuse_unknown_keys(schema, ("name", "description", "rules"), where)
    for name in ("name", "description"):
        expect(schema.get(name, ""), str, f"{where}.{name}")
    for number, rule in enumerate(expect(schema.get("rules"), list, f"{where}.rules")):
        place = f"{where}.rules[{number}]"
        _check_rule(rule, place)
        if rule["type"] == "pattern":
            _pattern(rule["value"], f"{place}.value")
        if rule["type"] == "custom":
            warn(f"{place}: there are no custom validators: every message passes this rule")


def _pattern(expression: str, where: str) -> Pattern:
    try:
        return Pattern(expression)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _check_rule(rule: Any, where: str) -> None:
    expect(rule, dict, where)
    for name in ("field", "type"):
        expect(rule.get(name), str, f"{where}.{name}")
    expect(rule.get("errorMessage", ""), str, f"{where}.errorMessage")
    if rule["type"] not in SCHEMA_RULES:
        raise ConfigurationError(f"{where}.type: expected one of {', '.join(SCHEMA_RULES)}, got {shown(rule['type'])}")
    needed = SCHEMA_RULES[rule["type"]]
    refuse_unknown_keys(rule, ("field", "type", "errorMessage", *(needed[:1] if needed else ())), where)
    if needed is None:
        return
    name, expected = needed
    value = rule.get(name)
    fits = {
        "string": type(value) is str,
        "number": type(value) in (int, float),
        "array of strings": type(value) is list and value != [] and all(type(item) is str for item in value),
    }
    if not fits[expected]:
        raise ConfigurationError(f"{where}.{name}: expected {expected}, got {shown(value)}")
    if name == "expectedType" and value not in _VALUE_TYPES:
        raise ConfigurationError(f"{where}.{name}: expected one of {', '.join(_VALUE_TYPES)}, got {shown(value)}")


def write_backend(path: Path, backend: str, files: Files) -> None:
    """Set ``backend`` in the configuration file durably, and leave everything else unchanged. Creates the file if it is
    missing. Raises ``OSError``."""
    tree: dict[str, Any] = {}
    mode = 0o600
    if path.exists():
        tree, mode = strict_loads(path.read_bytes()), stat.S_IMODE(path.stat().st_mode)
    tree["backend"] = backend
    directory = files.open_directory(path.parent)
    try:
        files.put(
            directory, path.name, json.dumps(tree, indent=2, ensure_ascii=False).encode() + b"\n", mode, durable=True
        )
    finally:
        files.close(directory)
