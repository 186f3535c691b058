"""Completions for bash, zsh and fish.

Those of click's programs are click's own: the shell asks the program. The client answers nobody but its mailbox, and
must start fast; what can stand on its line is written into its completions.
"""

from __future__ import annotations

import re
from pathlib import Path

from click import Group
from click.shell_completion import get_completion_class

from .model import Command, Option

Places = dict[str, tuple[str, str]]

#: Where the shells look, below ``share``; how the file of a program is called there.
PLACES: Places = {
    "bash": ("bash-completion/completions", "{}"),
    "zsh": ("zsh/site-functions", "_{}"),
    "fish": ("fish/vendor_completions.d", "{}.fish"),
}
#: Values that may be the name of a file.
_FILE_VALUES = ("FILE", "DIR", "PATH", "TEXT", "JSON")


def write(
    name: str, scripts: dict[str, str], share: Path, aliases: tuple[str, ...] = (), places: Places = PLACES
) -> list[Path]:
    """Write the completions of a program, by shell, to where the shells look; their paths.

    The shells find a program's file by its name, so an alias has a link.
    """
    made = []
    for shell, script in scripts.items():
        directory, pattern = places[shell]
        made.append(share / directory / pattern.format(name))
        made[-1].parent.mkdir(parents=True, exist_ok=True)
        made[-1].write_text(script, "utf-8")
        for alias in aliases:
            made.append(share / directory / pattern.format(alias))
            made[-1].unlink(missing_ok=True)
            made[-1].symlink_to(pattern.format(name))
    return made


def of_click(program: Group, name: str) -> dict[str, str]:
    """Click's completions of a program."""
    found = {}
    for shell in PLACES:
        kind = get_completion_class(shell)
        assert kind, shell
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        found[shell] = kind(program, {}, name, variable).source()
    return found


def written_out(program: Command) -> dict[str, str]:
    """Completions of a program that does not answer shells."""
    names = [program.path, *program.aliases]
    return {"bash": _bash(program, names), "zsh": _zsh(program, names), "fish": _fish(program, names)}


def _words(command: Command) -> str:
    """The command's words behind the program's name."""
    return " ".join(command.path.split()[1:])


def _takes_value(command: Command) -> list[str]:
    return sorted({name for one in command.walk() for option in one.options if option.value for name in option.names})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _offers(command: Command) -> list[str]:
    below = [one.path.split()[-1] for one in command.commands]
    return below + [name for option in command.options for name in option.names]


def _groups(program: Command) -> str:
    """A pattern of the words behind which another word of a command follows."""
    return "|".join(_quoted(_words(one)) for one in program.walk() if one.commands)


def _bash(program: Command, names: list[str]) -> str:
    function = "_" + re.sub(r"\W", "_", program.path)
    offers = [f"        {_quoted(_words(one))}) offers={_quoted(' '.join(_offers(one)))} ;;" for one in program.walk()]
    answer = 'COMPREPLY=($(compgen -W {} -- "$cur")); return ;;'
    choices = [f"        {options}) {answer.format(_quoted(values))}" for options, values in _choices(program)]
    cases, values = "\n".join(offers), "\n".join(choices)
    return f"""# bash completion of {", ".join(names)}; generated, do not edit
{function}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} command='' offers='' word skip='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        if [[ -n $skip ]]; then
            skip=''
            continue
        fi
        case $word in
            --) COMPREPLY=($(compgen -c -f -- "$cur")); return ;;
            {"|".join(_takes_value(program))}) skip=yes ;;
            -*) ;;
            *) case $command in {_groups(program)}) command="${{command:+$command }}$word" ;; esac ;;
        esac
    done
    case $prev in
{values}
        {"|".join(_takes_value(program))}) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    case $command in
{cases}
    esac
    COMPREPLY=($(compgen -W "$offers" -- "$cur"))
}}
complete -o filenames -F {function} {" ".join(names)}
"""


def _choices(program: Command) -> list[tuple[str, str]]:
    found = {option.names: option.choices for one in program.walk() for option in one.options if option.choices}
    return [("|".join(names), " ".join(values)) for names, values in found.items()]


def _zsh(program: Command, names: list[str]) -> str:
    function = "_" + re.sub(r"\W", "_", program.path)

    def described(pairs: list[tuple[str, str]]) -> str:
        return " ".join(_quoted(f"{name.replace(':', chr(92) + ':')}:{text}") for name, text in pairs)

    cases = []
    for one in program.walk():
        below = [(each.path.split()[-1], each.summary) for each in one.commands]
        options = [(name, option.text) for option in one.options for name in option.names]
        cases.append(
            f"        {_quoted(_words(one))}) commands=({described(below)}); options=({described(options)}) ;;"
        )
    choices = "\n".join(f"        {names}) compadd -- {values}; return ;;" for names, values in _choices(program))
    body = "\n".join(cases)
    return f"""#compdef {" ".join(names)}
# zsh completion; generated, do not edit
{function}() {{
    local command='' word skip='' i
    local -a commands options
    for ((i = 2; i < CURRENT; i++)); do
        word=${{words[i]}}
        if [[ -n $skip ]]; then
            skip=''
            continue
        fi
        case $word in
            --) _normal; return ;;
            {"|".join(_takes_value(program))}) skip=yes ;;
            -*) ;;
            *) case $command in {_groups(program)}) command="${{command:+$command }}$word" ;; esac ;;
        esac
    done
    case ${{words[CURRENT - 1]}} in
{choices}
        {"|".join(_takes_value(program))}) _files; return ;;
    esac
    case $command in
{body}
    esac
    (( $#commands )) && _describe -t commands command commands
    _describe -o -t options option options
}}
{function} "$@"
"""


def _fish(program: Command, names: list[str]) -> str:
    lines = ["# fish completion; generated, do not edit"]
    for name in names:
        lines.append(f"complete -c {name} -f")
        for one in program.walk():
            condition = _fish_condition(one, program)
            for each in one.commands:
                word = each.path.split()[-1]
                lines.append(f"complete -c {name} -n {_quoted(condition)} -a {word} -d {_quoted(each.summary)}")
            lines += [_fish_option(name, condition, option) for option in one.options]
    return "\n".join(lines) + "\n"


def _fish_condition(command: Command, program: Command) -> str:
    words = command.path.split()[1:]
    seen = [f"__fish_seen_subcommand_from {word}" for word in words]
    below = [one.path.split()[-1] for one in command.commands]
    if below:
        seen.append(f"not __fish_seen_subcommand_from {' '.join(below)}")
    return "; and ".join(seen)


def _fish_option(name: str, condition: str, option: Option) -> str:
    spelt = " ".join(f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.names)
    value = ""
    if option.choices:
        value = f" -x -a {_quoted(' '.join(option.choices))}"
    elif option.value:
        value = " -r -F" if option.value in _FILE_VALUES else " -x"
    return f"complete -c {name} -n {_quoted(condition)} {spelt}{value} -d {_quoted(option.text)}"
