"""A skill as part of a prompt. Pure."""

from __future__ import annotations

from codebutler.config.skills import Skill


def prompt_of(skill: Skill, words: str) -> str:
    """What an agent is asked when a person names the skill: their words first, then the instructions."""
    asked = words.strip() or f"Use the skill {skill.name}."
    if skill.kind == "code":
        return f"{asked}\n\nUse the skill {skill.name} for this: call the tool use_skill with what it needs."
    return f"{asked}\n\n[skill {skill.name}: do it this way]\n{skill.instructions}\n[end of the skill]"
