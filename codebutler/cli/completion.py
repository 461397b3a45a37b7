"""``codebutler completion``: completion of our commands, options and repositories in a shell."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from codebutler.cli import COMPLETION_VARIABLE
from codebutler.cli.context import environment
from codebutler.cli.output import notice, print_line
from codebutler.domain.errors import CodeButlerError

# COMPLETION_VARIABLE is set by the scripts below: the words typed so far are the arguments, and candidates are printed
# instead of running a command; a candidate and its description, separated by a tab.
Shell = Literal["bash", "zsh", "fish"]

BASH = f"""\
_codebutler() {{
    local IFS=$'\\n' found
    found=($({COMPLETION_VARIABLE}=1 "${{COMP_WORDS[0]}}" "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
    COMPREPLY=("${{found[@]%%$'\\t'*}}")
}}
complete -o default -F _codebutler codebutler
"""
ZSH = f"""\
#compdef codebutler
_codebutler() {{
    local -a found
    found=(${{(f)"$({COMPLETION_VARIABLE}=1 $words[1] "${{(@)words[2,CURRENT]}}" 2>/dev/null)"}})
    found=(${{found//:/\\\\:}})
    if (( $#found )); then
        _describe codebutler "${{(@A)found::=${{(@)found/$'\\t'/:}}}}" found
    else
        _files
    fi
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef _codebutler codebutler
"""
FISH = f"""\
function __codebutler_complete
    set -l words (commandline -opc)
    set -l found ({COMPLETION_VARIABLE}=1 $words (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command codebutler --no-files --arguments '(__codebutler_complete)'
"""
SCRIPTS: dict[Shell, str] = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(
    shell: Annotated[Shell | None, typer.Argument(help="The shell; defaults to the one in $SHELL.")] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Install it where that shell looks for it.")
    ] = False,
) -> None:
    """Print the completion script for a shell, or install it."""
    chosen = shell or _own_shell()
    if not install:
        sys.stdout.write(SCRIPTS[chosen])
        return
    home = Path(environment().get("HOME") or Path.home())
    for file in install_script(chosen, home):
        print_line(f"Wrote {file}.")
    notice("Open a new shell to use it.")


def install_script(shell: Shell, home: Path) -> list[Path]:
    """Write the script, and for bash and zsh the line that loads it; returns the changed files."""
    if shell == "fish":
        script = home / ".config" / "fish" / "completions" / "codebutler.fish"
    else:
        script = home / ".local" / "share" / "codebutler" / f"completion.{shell}"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(SCRIPTS[shell], encoding="utf-8")
    if shell == "fish":
        return [script]
    start, line = home / f".{shell}rc", f"source {script}\n"
    before = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line in before:
        return [script]
    gap = "" if not before or before.endswith("\n") else "\n"
    with start.open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{gap}{line}")
    return [script, start]


def candidates(words: Sequence[str]) -> list[str]:
    """The completions of the last of ``words``, each with its description after a tab."""
    from typer._click.shell_completion import _resolve_context, _resolve_incomplete

    from codebutler.cli.app import PROGRAM, build

    *before, incomplete = words or [""]
    context = _resolve_context(build(), {}, PROGRAM, list(before))
    completing, incomplete = _resolve_incomplete(context, list(before), incomplete)
    items = [each for each in completing.shell_complete(context, incomplete) if each.type == "plain"]
    return [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in items]


def _own_shell() -> Shell:
    name = Path(environment().get("SHELL", "")).name
    for shell in get_args(Shell):
        if shell == name:
            return shell  # type: ignore[no-any-return]  # the library has no types
    raise CodeButlerError(
        f"no completion for {name or 'an unknown shell'}: choose one of {', '.join(SCRIPTS)}"
    )
