"""Options of several commands: the root directory, the configuration file, and a flag for every setting."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from postroom_common.errors import PostroomError
from postroom_common.settings import Setting

from ..config.config import Config, load
from ..config.settings import ATTRIBUTES, SETTINGS
from ..platform.accounts import user_name

#: Flags that ``--help`` shows; ``--help-settings`` shows all.
SHOWN: Final = ("backend", "ipc.root", "sqlite.dbPath", "journal.durability", "log.level")
#: Flags that the C++ daemon spells differently.
OLDER_FLAGS: Final = {
    "sqlite.dbPath": "--db-path",
    "paths.dataRoot": "--data-root",
    "paths.logRoot": "--log-root",
    "lease.visibilityTimeoutSec": "--visibility-timeout",
}

Callback = Callable[..., Any]


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 queue``, ``2 queues``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Source:
    """Where a command's configuration comes from. ``root`` is None until somebody names it."""

    def __init__(self, root: Path | None, config_file: Path | None, flags: dict[str, str | None]) -> None:
        self.root = root
        self._file = config_file
        self._flags = {key: text for key, text in flags.items() if text is not None}

    def load(self) -> Config:
        """The configuration, resolved.

        Raises ``ConfigurationError``; ``PostroomError`` if the root is not a readable directory.
        """
        if self.root is None:
            raise click.UsageError("Missing option '--root': name the directory here, or in POSTROOM_ROOT.")
        _check_root(self.root)
        return load(self.root, self._file, os.environ, self._flags)

    def load_to_run(self) -> Config:
        """The configuration for a daemon. Also raises ``ConfigurationError`` for one with which no daemon may work."""
        config = self.load()
        config.check_to_run()
        return config

    def load_root(self, purpose: str) -> Config:
        """The configuration of an existing root; without one, the error says that there is nothing to ``purpose``."""
        config = self.load()
        if not config.root.is_dir():
            raise PostroomError(f"{config.root} does not exist: there is nothing to {purpose}")
        return config


def _check_root(root: Path) -> None:
    try:
        mode = root.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise PostroomError(f"{root} cannot be used as root directory: {error.strerror}") from None
    if not stat.S_ISDIR(mode):
        raise PostroomError(f"{root} cannot be used as root directory: it is a file; name a directory")
    if not os.access(root, os.R_OK | os.X_OK):
        owner = user_name(root.stat().st_uid) or root.stat().st_uid
        raise PostroomError(
            f"{root} cannot be read: run this as its user {owner}, or as root with `runuser -u {owner} --`"
        )


def root_option(command: Callback, required: bool = True) -> Callback:
    """Add the option ``--root`` to a command."""
    made: Callback = click.option(
        "--root",
        type=click.Path(path_type=Path, readable=False),
        required=required,
        envvar="POSTROOM_ROOT",
        metavar="DIR",
        help="Root directory, with config.json, ipc, data, journal and traffic; also POSTROOM_ROOT.",
    )(command)
    return made


_config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, readable=False),
    help="Configuration file instead of DIR/config.json.",
)


json_option: Callable[[Callback], Callback] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


def configured(command: Callback, root_required: bool = True) -> Callback:
    """Add ``--root``, ``--config`` and a flag for every setting to a command, which is called with their ``Source``."""

    @wraps(command)
    def wrapped(root: Path | None, config_file: Path | None, **given: Any) -> Any:
        flags = {key: given.pop(name) for key, name in ATTRIBUTES.items()}
        return command(Source(root, config_file, flags), **given)

    made: Callback = _settings_help_option(wrapped)
    for key, setting in reversed(SETTINGS.items()):
        made = _flag(setting, hidden=key not in SHOWN)(made)
    return root_option(_config_option(made), root_required)


def settings_help() -> str:
    """The flags of all settings, as text."""
    lines = ["Every setting as a flag. Precedence: flag, environment, file, default.", ""]
    for setting in SETTINGS.values():
        older = OLDER_FLAGS.get(setting.key)
        lines.append(f"{setting.flag} {_metavar(setting)}" + (f"  (also {older})" if older else ""))
        names = f"{setting.key}, {setting.environment}" if setting.by_variable else f"{setting.key}, no variable"
        lines.append(f"    {setting.help}; {names}, default {default_text(setting) or 'empty'}")
    return "\n".join(lines)


def default_text(setting: Setting) -> str:
    """A setting's default as it would be written in an environment variable."""
    if isinstance(setting.default, Path):
        return f"./{setting.default}"
    if setting.type is float:
        return f"{setting.default:g}"
    return str(setting.default).lower() if setting.type is bool else str(setting.default)


def _flag(setting: Setting, hidden: bool) -> Callback:
    names = [setting.flag, ATTRIBUTES[setting.key]]
    if setting.key in OLDER_FLAGS:
        names.insert(1, OLDER_FLAGS[setting.key])
    text = f"{setting.help[0].upper()}{setting.help[1:]} (default {default_text(setting)})."
    return click.option(*names, metavar=_metavar(setting), help=text, hidden=hidden)


def _metavar(setting: Setting) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    return {bool: "true|false", int: "N", float: "N", Path: "PATH"}.get(setting.type, "TEXT")


def _show_settings(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(settings_help())
        context.exit()


_settings_help_option = click.option(
    "--help-settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_settings,
    help="Show the flags of all settings and exit.",
)
