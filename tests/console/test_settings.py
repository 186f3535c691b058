"""The settings: their sources, and the messages about invalid ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from postroom_console.data.config import FILE_VARIABLE, OPTIONS, Config, ConfigError, config_path, load_config
from postroom_console.tui.keys import SCREENS, SPLIT, all_keys, key_label, keymap, scope


def settings(tmp_path: Path, text: str) -> dict[str, str]:
    """An environment in which a file of settings has this text."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    return {FILE_VARIABLE: str(path)}


def pressed(keys: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    """The keys of actions without those of other keyboards on the same places."""
    return {name: [key for key in value.split(",") if key.isascii()] for name, value in keymap(keys).items()}


def test_without_a_file_everything_is_as_the_table_says(tmp_path: Path) -> None:
    reported = load_config({}, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert reported == Config(path=tmp_path / "postroom-console" / "config.toml")
    assert all(getattr(reported, option.name) == option.default for option in OPTIONS)


def test_the_environment_overrides_the_file_and_a_flag_overrides_both(tmp_path: Path) -> None:
    environ = settings(tmp_path, 'sort = "name"\nread_only = true\n')
    assert load_config({}, environ).sort == "name"
    environ |= {"POSTROOM_CONSOLE_SORT": "dead", "POSTROOM_CONSOLE_READ_ONLY": "no"}
    assert load_config({"sort": None}, environ).sort == "dead"
    assert not load_config({"read_only": None}, environ).read_only
    assert load_config({"read_only": True, "sort": "rate"}, environ).sort == "rate"
    assert load_config({"read_only": True}, environ).read_only


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sort = ", "config.toml: "),
        ('sort = "size"', "sort: must be one of trouble, name"),
        ("read_only = 1", "read_only: must be true or false"),
        ("colour = true", "colour: unknown setting; expected one of read_only"),
        ("keys = 3", "keys: must be a table"),
        ("[keys]\npause = 3", "keys.pause: must be a key"),
        ("[keys]\npause = []", "keys.pause: must be a key"),
    ],
)
def test_an_invalid_setting_is_reported_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"config\.toml") as reported:
        load_config({}, settings(tmp_path, text))
    assert said in str(reported.value)


def test_a_named_settings_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config({}, {FILE_VARIABLE: str(tmp_path / "none.toml")})
    with pytest.raises(ConfigError, match="POSTROOM_CONSOLE_ASCII: must be true or false"):
        load_config({}, {"XDG_CONFIG_HOME": str(tmp_path), "POSTROOM_CONSOLE_ASCII": "perhaps"})


def test_the_settings_file_is_searched_in_the_standard_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/media/usb-stick")
    assert config_path({}) == Path("/media/usb-stick/.config/postroom-console/config.toml")


def test_keys_are_written_as_characters_or_by_their_names(tmp_path: Path) -> None:
    reported = load_config(
        {}, settings(tmp_path, '[keys]\npause = "!"\n"pause.publish" = ["u", "f5"]\nhelp = "ctrl+g"\n')
    )
    assert pressed(reported.keys) == {"pause": ["exclamation_mark"], "pause.publish": ["u", "f5"], "help": ["ctrl+g"]}
    assert key_label("exclamation_mark") == "!" and key_label("u,f5") == "u" and key_label("ctrl+g") == "ctrl+g"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"paws": ("p",)}, "keys.paws: there is no such action"),
        ({"pause": ("s",)}, "s is used by two actions"),
        ({"filter": ("x",)}, "x is used by two actions, drop and filter"),
        ({"pause": ("A",)}, "A cannot be used: it ends the sequences of arrow keys"),
        ({"pause": ("hyper+p",)}, "hyper.p is not a key"),
    ],
)
def test_invalid_keys_are_reported(keys: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        keymap(keys)


def test_two_keys_may_be_swapped() -> None:
    assert pressed({"pause": ("i",), "pause.publish": ("p",)}) == {"pause": ["i"], "pause.publish": ["p"]}


@pytest.mark.parametrize("screen", SCREENS)
def test_no_key_has_two_actions_on_one_screen(screen: str) -> None:
    pressed = [one for key in scope(screen) for one in key.keys.split(",")]
    assert sorted(pressed) == sorted(set(pressed))


def test_every_action_has_a_key_that_every_terminal_sends_in_one_piece() -> None:
    for key in all_keys():
        names = key.keys.split(",")
        assert not SPLIT.intersection(names), key.id
        assert not any("+" in name for name in names), key.id


def test_every_action_has_a_name_of_its_own() -> None:
    ids = [key.id for key in all_keys()]
    assert sorted(ids) == sorted(set(ids))
