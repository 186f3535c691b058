"""Completions for bash, zsh and fish.

A program that uses click answers the shell itself, through click's own scripts. The client does not: it must start
fast, and it needs no library. Its scripts list all commands and options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from click import Group
from click.shell_completion import get_completion_class

from .model import Command, Option

Places = dict[str, tuple[str, str]]

#: The directories below ``share`` in which the shells look, and how they name the file of a program.
PLACES: Final[Places] = {
    "bash": ("bash-completion/completions", "{}"),
    "zsh": ("zsh/site-functions", "_{}"),
    "fish": ("fish/vendor_completions.d", "{}.fish"),
}
#: Metavars of values that may name a file.
_FILE_VALUES: Final = ("FILE", "DIR", "PATH", "TEXT", "JSON")


def write(
    name: str, scripts: dict[str, str], share: Path, aliases: tuple[str, ...] = (), places: Places = PLACES
) -> list[Path]:
    """Write the completions of a program, one script for each shell, below a ``share`` directory; the paths.

    The shells find a script by the name of the program, so an alias gets a link.
    """
    written = []
    for shell, script in scripts.items():
        directory, pattern = places[shell]
        path = share / directory / pattern.format(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, "utf-8")
        written.append(path)
        for alias in aliases:
            link = path.with_name(pattern.format(alias))
            link.unlink(missing_ok=True)
            link.symlink_to(path.name)
            written.append(link)
    return written


def of_click(program: Group, name: str) -> dict[str, str]:
    """Click's own scripts for a program."""
    scripts = {}
    for shell in PLACES:
        kind = get_completion_class(shell)
        assert kind, shell
        variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
        scripts[shell] = kind(program, {}, name, variable).source()
    return scripts


def standalone(program: Command) -> dict[str, str]:
    """Scripts that list all commands and options of a program."""
    return {"bash": _script(program, _BASH), "zsh": _script(program, _ZSH), "fish": _fish(program)}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# --- bash and zsh ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shell:
    """What differs between bash and zsh: the frame around the common body, and how values are offered."""

    frame: str
    values: str
    files: str
    programs: str


#: Finds the command among the words before the cursor, then completes the value of an option, then offers what may
#: follow the command. bash and zsh both run it.
_BODY: Final = """\
    for word in "${{before[@]}}"; do
        if [[ -n $skip ]]; then
            skip=''
            continue
        fi
        case $word in
            --) {programs}; return ;;
            {with_value}) skip=yes ;;
            -*) ;;
            *) case $command in {groups}) command="${{command:+$command }}$word" ;; esac ;;
        esac
    done
    case $word in
{choices}
        {with_value}) {files}; return ;;
    esac
    case $command in
{offers}
    esac
"""
_BASH: Final = _Shell(
    """\
# bash completion of {names}; generated, do not edit
{function}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} command='' offers='' word='' skip=''
    local before=("${{COMP_WORDS[@]:1:COMP_CWORD-1}}")
{body}    COMPREPLY=($(compgen -W "$offers" -- "$cur"))
}}
complete -o filenames -F {function} {names}
""",
    values='COMPREPLY=($(compgen -W "{}" -- "$cur"))',
    files='COMPREPLY=($(compgen -f -- "$cur"))',
    programs='COMPREPLY=($(compgen -c -f -- "$cur"))',
)
_ZSH: Final = _Shell(
    """\
#compdef {names}
# zsh completion; generated, do not edit
{function}() {{
    local command='' word='' skip=''
    local -a before commands options
    before=("${{(@)words[2,CURRENT-1]}}")
{body}    (( $#commands )) && _describe -t commands command commands
    _describe -o -t options option options
}}
{function} "$@"
""",
    values="compadd -- {}",
    files="_files",
    programs="(( CURRENT -= ${words[(i)--]} )); shift ${words[(i)--]} words; _normal",
)


def _script(program: Command, shell: _Shell) -> str:
    commands = list(program.walk())
    options = [option for one in commands for option in one.options]
    choices = {"|".join(one.names): shell.values.format(" ".join(one.choices)) for one in options if one.choices}
    offers = _bash_offers if shell is _BASH else _zsh_offers
    body = _BODY.format(
        programs=shell.programs,
        files=shell.files,
        with_value="|".join(sorted({name for option in options if option.value for name in option.names})),
        groups="|".join(_quoted(_words(one)) for one in commands if one.commands),
        choices="\n".join(f"        {names}) {offer}; return ;;" for names, offer in choices.items()),
        offers="\n".join(f"        {_quoted(_words(one))}) {offers(one)} ;;" for one in commands),
    )
    names = " ".join([program.path, *program.aliases])
    return shell.frame.format(names=names, function=f"_{program.path}", body=body)


def _words(command: Command) -> str:
    """The words of a command after the name of the program."""
    return " ".join(command.path.split()[1:])


def _bash_offers(command: Command) -> str:
    below = [one.path.split()[-1] for one in command.commands]
    names = [name for option in command.options for name in option.names]
    return f"offers={_quoted(' '.join(below + names))}"


def _zsh_offers(command: Command) -> str:
    below = [(one.path.split()[-1], one.summary) for one in command.commands]
    options = [(name, option.text) for option in command.options for name in option.names]

    def described(pairs: list[tuple[str, str]]) -> str:
        return " ".join(_quoted(f"{name}:{text}") for name, text in pairs)

    return f"commands=({described(below)}); options=({described(options)})"


# --- fish -----------------------------------------------------------------------------------------------------


def _fish(program: Command) -> str:
    name = program.path
    lines = ["# fish completion; generated, do not edit", f"complete -c {name} -f"]
    lines += [f"complete -c {alias} -w {name}" for alias in program.aliases]
    for one in program.walk():
        start = f"complete -c {name} -n {_quoted(_fish_condition(one))}"
        lines += [f"{start} -a {below.path.split()[-1]} -d {_quoted(below.summary)}" for below in one.commands]
        lines += [f"{start} {_fish_option(option)}" for option in one.options]
    return "\n".join(lines) + "\n"


def _fish_condition(command: Command) -> str:
    """Whether the words on the line are those of a command, and of none below it."""
    conditions = [f"__fish_seen_subcommand_from {word}" for word in command.path.split()[1:]]
    if command.commands:
        below = " ".join(one.path.split()[-1] for one in command.commands)
        conditions.append(f"not __fish_seen_subcommand_from {below}")
    return "; and ".join(conditions)


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.names)
    value = ""
    if option.choices:
        value = f" -x -a {_quoted(' '.join(option.choices))}"
    elif option.value:
        value = " -r -F" if option.value in _FILE_VALUES else " -x"
    return f"{names}{value} -d {_quoted(option.text)}"
