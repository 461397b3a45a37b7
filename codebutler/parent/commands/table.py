"""Finds the handlers of the parent's commands, and calls them. Which there are stands in codebutler.domain.commands."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from codebutler.domain.commands import DIRECT, WORDS, Word, usage_error
from codebutler.domain.model import Command
from codebutler.parent.commands.asked import Asked, AskedDirectly, Handler, Resources
from codebutler.schedule.desk import Asker


async def answer(request: Command, resources: Resources, asker: Asker) -> str:
    """Do what is said; the text is what the person reads. Raises StoreError."""
    word = WORDS[request.name]
    if not word.takes(request.argument):
        return usage_error(word)
    return await handler_of(word)(Asked(resources, request.argument, asker))


def handler_of(word: Word) -> Handler:
    """What does a word that the parent does."""
    found: Handler = _found(*word.done_by)
    return found


def direct_answer(name: str, asked: AskedDirectly) -> str:
    """What one of ``DIRECT`` says in a direct message."""
    return str(_found(*DIRECT[name].direct.split("."))(asked))


def _found(file: str, function: str) -> Any:
    return getattr(import_module(f".{file}", __package__), function)
