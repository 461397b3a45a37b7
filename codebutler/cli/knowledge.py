"""`codebutler memory`: show and forget what is remembered about a repository. `codebutler skills`: list, create, enable
and disable skills."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct

from codebutler.cli.command import App
from codebutler.cli.config_files import Layer, change
from codebutler.cli.context import effective_config, home, known_repositories, reload_supervisor, repository
from codebutler.cli.output import age, notice, print_json, print_line, print_table, printable_lines, warn
from codebutler.config.chats import message_url
from codebutler.config.memory import FactChange, MemoryFile, apply_changes, facts_of
from codebutler.config.merge import put
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
from codebutler.domain.refs import NO_CHANNEL, NOWHERE, ConversationRef, MessageRef
from codebutler.platform.files import PrivateDir

memory_app = App("Show what agents remember about a repository, and forget some of it.")
MEMORY_OF = typer.Argument(
    help="A repository's name; optional if there is only one.", autocompletion=known_repositories
)


class MemoryEntry(Struct, frozen=True):
    """A fact, and its origin; ``at`` is ISO 8601. ``name``: an agent's key for it."""

    text: str
    name: str = ""
    channel: ConversationRef = NO_CHANNEL
    thread: MessageRef = NOWHERE
    at: str = ""

    @property
    def link(self) -> str:
        """The thread it comes from, "" if none."""
        return message_url(self.channel, self.thread) if self.thread else ""

    def age(self, now: datetime) -> str:
        """Its age, "" if a person wrote it into the file."""
        return age((now - datetime.fromisoformat(self.at)).total_seconds()) if self.at else ""


@memory_app.command()
def show(
    repo: Annotated[str, MEMORY_OF] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the facts that every new session gets, with numbers, ages and threads, like `!memory`."""
    file = MemoryFile(Path(repository(repo).path))
    entries, now = _entries(file), datetime.now(UTC)
    if as_json:
        print_json([_fact_json(number, entry) for number, entry in enumerate(entries, 1)])
    elif not entries:
        print_line(f"Nothing is remembered yet: add facts to {file.path}, one per line, each after a dash.")
    else:
        rows = [
            (str(number), entry.age(now), entry.text, entry.link) for number, entry in enumerate(entries, 1)
        ]
        print_table(("N", "AGE", "FACT", "THREAD"), rows)


@memory_app.command()
def forget(
    number: Annotated[int, typer.Argument(help="The fact's number in `codebutler memory show`.", min=1)],
    repo: Annotated[str, MEMORY_OF] = "",
) -> None:
    """Forget one fact."""
    file = MemoryFile(Path(repository(repo).path))
    facts = facts_of(file.read())
    if len(facts) < number <= len(_entries(file)):
        raise CodeButlerError(
            f"fact {number} is in the worker's store, which this command does not change: "
            f"send `!memory forget {number}` in the repository's channel"
        )
    if number > len(facts):
        raise CodeButlerError(f"there is no fact {number}: `codebutler memory show` lists them")
    # By its words: the numbers may have changed since.
    applied = file.change(partial(apply_changes, (FactChange(facts[number - 1]),)))
    if not applied.applied:
        raise CodeButlerError("the memory has just changed: run `codebutler memory show` again")
    print_line(f"Forgotten: {facts[number - 1]}")


def _entries(file: MemoryFile) -> list[MemoryEntry]:
    """The facts of the file, then those that agents keep by name: in the order of `!memory`."""
    facts = facts_of(file.read())
    try:
        # By name: the parent's packages do not import the worker's.
        recalled = importlib.import_module("codebutler_worker.memory.learning").read_stored_memory(file.repo)
    except CodeButlerError as error:
        notice(f"cannot tell where facts come from: {error}")
        return [MemoryEntry(fact) for fact in facts]
    return [_file_entry(fact, recalled.lines.get(fact)) for fact in facts] + [
        MemoryEntry(f"{row.key}: {row.value}", row.key, row.channel_id, row.thread, row.updated_at)
        for row in recalled.facts
    ]


def _file_entry(fact: str, row: Any) -> MemoryEntry:
    if row is None:
        return MemoryEntry(fact)
    return MemoryEntry(fact, "", row.channel_id, row.thread, row.added_at)


def _fact_json(number: int, entry: MemoryEntry) -> dict[str, object]:
    return {
        "number": number,
        "fact": entry.text,
        "name": entry.name or None,
        "at": entry.at or None,
        "link": entry.link or None,
    }


skills_app = App("List skills; create, enable or disable one.")
REPO = typer.Option(
    help="For this repository; defaults to the whole installation.", autocompletion=known_repositories
)
SKILL = typer.Argument(help="The skill's name.")


@skills_app.command("list")
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


@skills_app.command()
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


@skills_app.command()
def disable(name: Annotated[str, SKILL]) -> None:
    """Disable a skill for all repositories."""
    _check_name(name)
    _check_known(name)
    _switch(name, off=True)
    print_line(f"Disabled {name}.")


@skills_app.command()
def enable(name: Annotated[str, SKILL]) -> None:
    """Enable a skill again."""
    if name not in effective_config().config.skills.disabled:
        _check_known(name)
    _switch(name, off=False)
    print_line(f"Enabled {name}.")


@skills_app.command()
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
