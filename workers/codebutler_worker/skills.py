"""The skills that one repository's agents may use now, and a skill as part of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings

if TYPE_CHECKING:
    from codebutler.config.skills import FoundSkills, Skill


class Library(Struct, frozen=True):
    """Looks each time, so that an edited skill counts at once. Blocks for a few small files."""

    settings: RepoSettings
    home: Home

    def found(self) -> FoundSkills:
        """Every skill, including disabled and untrusted ones."""
        from codebutler.config.skills import find_skills  # YAML is not for every worker's memory

        return find_skills(self.home, Path(self.settings.path), self.settings.skills_digest)

    def enabled(self) -> Mapping[str, Skill]:
        """Those that may be used, by name."""
        return self.found().enabled(self.settings.config.skills.disabled)


def prompt_of(skill: Skill, words: str) -> str:
    """The prompt of a person who names the skill: their words first, then the instructions."""
    asked = words.strip() or f"Use the skill {skill.name}."
    if skill.kind == "code":
        return f"{asked}\n\nUse the skill {skill.name} for this: call the tool use_skill with what it needs."
    return f"{asked}\n\n[skill {skill.name}: do it this way]\n{skill.instructions}\n[end of the skill]"
