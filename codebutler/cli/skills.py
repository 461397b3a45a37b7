"""`codebutler skills`: list, create, enable and disable skills."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from codebutler.cli.command import App
from codebutler.cli.config import Layer, change
from codebutler.cli.context import effective_config, home, known_repositories, reload_supervisor, repository
from codebutler.cli.output import notice, print_json, print_line, print_table, printable_lines, warn
from codebutler.config.load import put
from codebutler.config.paths import RepoPaths
from codebutler.config.registering import prepare_directory
from codebutler.config.registry import Registry
from codebutler.config.skills import (
    FILE_NAME,
    PROGRAM_NAME,
    PROGRAM_TEMPLATE,
    SKILLS,
    FoundSkills,
    Skill,
    find_skills,
    is_name,
    template,
)
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.files import PrivateDir

app = App("List skills; create, enable or disable one.")
REPO = typer.Option(
    help="For this repository; defaults to the whole installation.", autocompletion=known_repositories
)
SKILL = typer.Argument(help="The skill's name.")


@app.command("list")
def list_(
    repo: Annotated[str, REPO] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the skills: where each comes from, and whether it is enabled."""
    found, disabled = _find_skills(repo)
    rows = [(skill, skill.name not in disabled) for _, skill in sorted(found.skills.items())]
    if as_json:
        print_json([_skill_json(skill, on=on) for skill, on in rows])
        return
    cells = [
        (each.name, each.origin, each.kind, "on" if on else "off", each.description) for each, on in rows
    ]
    print_table(("NAME", "FROM", "KIND", "STATE", "DESCRIPTION"), cells)
    for problem in found.problems:
        warn(problem)
    if found.untrusted:
        warn(f"not used until you run `codebutler trust {repo}`: {', '.join(found.untrusted)}")


@app.command()
def info(
    name: Annotated[str, SKILL],
    repo: Annotated[str, REPO] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one skill: its purpose, and its instructions for the agent."""
    found, disabled = _find_skills(repo)
    skill = found.skills.get(name)
    if skill is None:
        raise _unknown_skill(name)
    if as_json:
        print_json(
            {
                **_skill_json(skill, on=name not in disabled),
                "instructions": skill.instructions,
                "program": skill.program,
            }
        )
        return
    state = "off" if name in disabled else "on"
    print_line(f"{skill.name}: {skill.description}")
    print_line(f"from {skill.origin}, {skill.kind}, {state}")
    for text in (skill.instructions, skill.program):
        if text:
            print_line()
            for line in printable_lines(text).splitlines():
                print_line(line)


@app.command()
def disable(name: Annotated[str, SKILL]) -> None:
    """Disable a skill for all repositories."""
    _check_name(name)
    _check_known(name)
    _switch(name, off=True)
    print_line(f"Disabled {name}.")


@app.command()
def enable(name: Annotated[str, SKILL]) -> None:
    """Enable a skill again."""
    if name not in effective_config().config.skills.disabled:
        _check_known(name)
    _switch(name, off=False)
    print_line(f"Enabled {name}.")


@app.command()
def create(
    name: Annotated[str, SKILL],
    description: Annotated[str, typer.Option(help="What it does, and when to use it, in a sentence.")] = "",
    repo: Annotated[str, typer.Option(help="For this repository only; defaults to all.")] = "",
    code: Annotated[
        bool, typer.Option("--code", help="Include a program (skill.py) that runs in the sandbox.")
    ] = False,
) -> None:
    """Create a skill: a file to fill in."""
    _check_name(name)
    if repo:
        paths = RepoPaths(Path(repository(repo).path))
        with prepare_directory(paths):
            root = paths.root
    else:
        root = home().ensure().root
    skills = root / SKILLS
    with PrivateDir(skills, follow_links=not repo, create=True):
        pass  # made, or refused where a link is in its place
    with PrivateDir(skills / name, follow_links=not repo, create=True) as files:
        if files.read(FILE_NAME) is not None:
            raise CodeButlerError(f"{skills / name / FILE_NAME} exists already: edit it")
        files.write(FILE_NAME, template(name, description).encode())
        if code:
            files.write(PROGRAM_NAME, PROGRAM_TEMPLATE.encode())
    print_line(f"Wrote {skills / name / FILE_NAME}: describe in it what the agent should do.")
    if repo:
        notice(f"Next: `codebutler trust {repo}`, and again whenever its skills change.")


def _find_skills(repo: str) -> tuple[FoundSkills, tuple[str, ...]]:
    """All skills, and the names of the disabled ones."""
    if not repo:
        return find_skills(home()), effective_config().config.skills.disabled
    entry = repository(repo)
    found = find_skills(home(), Path(entry.path), entry.skills_digest)
    return found, effective_config(entry).config.skills.disabled


def _check_name(name: str) -> None:
    if not is_name(name):
        raise typer.BadParameter(
            "a skill's name is lower-case letters, digits and dashes, such as review-diff"
        )


def _check_known(name: str) -> None:
    """Raises CodeButlerError for a name that neither the home nor a repository has."""
    home_dir = home()
    entries = Registry(home_dir).load()
    places = [
        find_skills(home_dir),
        *(find_skills(home_dir, Path(each.path), each.skills_digest) for each in entries),
    ]
    if not any(name in found.skills or name in found.untrusted for found in places):
        raise _unknown_skill(name)


def _unknown_skill(name: str) -> CodeButlerError:
    return CodeButlerError(f"there is no skill {name}: `codebutler skills list` shows the skills")


def _switch(name: str, *, off: bool) -> None:
    change(partial(_with_switched, name=name, off=off), str(home().config))
    reload_supervisor()


def _with_switched(layer: Layer, name: str, *, off: bool) -> Layer:
    disabled = [each for each in layer.get("skills", {}).get("disabled", ()) if each != name]
    put(layer, ("skills", "disabled"), sorted([*disabled, name]) if off else disabled)
    return layer


def _skill_json(skill: Skill, *, on: bool) -> dict[str, object]:
    return {
        "name": skill.name,
        "description": skill.description,
        "origin": skill.origin,
        "kind": skill.kind,
        "enabled": on,
    }
