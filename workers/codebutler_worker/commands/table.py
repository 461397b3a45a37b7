"""Which file does which word. A word without a handler here cannot exist: a test holds the two tables together."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.words import WORDS, misuse, nearest
from codebutler_worker.commands import (
    agents,
    checks,
    diff,
    fresh,
    help,  # noqa: A004 - the word's own name
    listing,
    logs,
    memory,
    output,
    ping,
    resume,
    skills,
    status,
    stop,
    undo,
    usage,
)
from codebutler_worker.commands.asked import Asked, Handler
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code, one_line

HANDLERS: Mapping[str, Handler] = {
    "help": help.run,
    "ping": ping.run,
    "status": status.run,
    "list": listing.run,
    "new": fresh.new,
    "continue": resume.run,
    "reset": fresh.reset,
    "stop": stop.stop,
    "kill": stop.kill,
    "output": output.run,
    # Prompts for those agents; what comes here all the same was said without a task.
    "agent": usage.run,
    "claude": usage.run,
    "kimi": usage.run,
    "c": usage.run,
    "create-image": usage.run,
    "logs": logs.run,
    # The supervisor's own; what comes here all the same was said wrongly.
    "jobs": usage.run,
    "in": usage.run,
    "at": usage.run,
    "memory": memory.run,
    "skills": skills.run,
    "agents": agents.run,
    "diff": diff.run,
    "undo": undo.run,
    "checks": checks.run,
}


def understood(name: str, argument: str) -> bool:
    """Whether the word exists and may be followed by that."""
    word = WORDS.get(name)
    return word is not None and word.takes(argument) and not word.prefix


def run_command(asked: Asked) -> Todo:
    """Do what was asked and reply. An unknown word gets the nearest one suggested, a wrong argument the usage."""
    name = asked.command.name
    word = WORDS.get(name)
    if word is not None and word.takes(asked.argument):
        return HANDLERS[name](asked)
    if word is not None:
        return asked.reply(misuse(word))
    near = nearest(name)
    hint = f"Did you mean `!{near}`?" if near else "Say `!help` for what I know."
    return asked.reply(f"I do not know {code('!' + one_line(name, 40))}. {hint}")
