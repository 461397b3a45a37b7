"""A command, told from what is not one, and its handler found. Which there are: codebutler.domain.commands."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from codebutler.domain.commands import WORDS, Word, nearest, usage_error
from codebutler_worker.commands.asked import Asked, Handler
from codebutler_worker.desk.deferred import Answer
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code, one_line


def understood(name: str, argument: str) -> bool:
    """Whether the word exists and may be followed by that."""
    word = WORDS.get(name)
    return word is not None and word.takes(argument) and not word.prefix


def run_command(asked: Asked) -> Todo:
    """Do what was asked and reply. An unknown word gets the nearest one suggested, a wrong argument the usage; a prompt
    for an agent, or what the parent does, comes here only if it was said wrongly."""
    word = WORDS.get(asked.command.name)
    if word is None:
        near = nearest(asked.command.name)
        hint = f"Did you mean `!{near}`?" if near else "Say `!help` for what I know."
        return asked.reply(f"I do not know {code('!' + one_line(asked.command.name, 40))}. {hint}")
    handler = handler_of(word) if word.takes(asked.argument) else None
    return handler(asked) if handler else asked.reply(usage_error(word))


def handler_of(word: Word) -> Handler | None:
    """What does the word; None if that is no business of the worker's."""
    if word.runs != "worker" or not word.done_by:
        return None
    file, function = word.done_by
    found: Handler = getattr(_file(file), function)
    return found


def answer_of(name: str) -> Answer:
    """What finds a deferred command's answer: it stands beside the handler. Raises KeyError for what is no word."""
    found: Answer = _file(WORDS[name].done_by[0]).answer
    return found


def load() -> None:
    """Import every handler, for the fork server: what a worker imports itself it shares with nobody."""
    for word in WORDS.values():
        handler_of(word)


def _file(name: str) -> Any:
    return import_module(f".{name}", __package__)
