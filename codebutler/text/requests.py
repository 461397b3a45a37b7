"""Text to Request: is this a command, a prompt for a named agent, or plain text? Pure.

``!command …`` anywhere a message may be, ``/butler command …`` as a slash command or as text, or a message that
begins with ``/command``; some also as ``command: …``. ``prefix: text`` names an agent, and so do ``!prefix text`` and
``/butler prefix text``. Everything else is a prompt for the default agent. The commands are those of
``codebutler.domain.commands``; some of them are prompts for a built-in agent.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from codebutler.domain.commands import SLASH, WORDS, word_of
from codebutler.domain.model import (
    Command,
    Event,
    MessageEdited,
    MessagePosted,
    NoRequest,
    Prompt,
    Request,
    SlashCommand,
)

SHELL_PREFIX = "run"
_BANG = re.compile(r"!([a-z][a-z-]*)(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_SLASH = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_MARKED = re.compile(r"```\n?([^`]+?)\n?```|`([^`\n]+)`")
_PREFIX = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*)$", re.IGNORECASE | re.DOTALL)


def request_of(event: Event, prefixes: Collection[str]) -> Request:
    """The request in an event; ``prefixes`` are the lower-case words that name an agent here."""
    if isinstance(event, SlashCommand):
        return slash_request(event.text, prefixes)
    if isinstance(event, MessagePosted | MessageEdited):
        return text_request(event.text, prefixes)
    return NoRequest()


def text_request(text: str, prefixes: Collection[str]) -> Request:
    """The request in a message's text. A leading ``/path`` that is not a command stays a prompt."""
    stripped = text.strip()
    if match := _BANG.match(stripped):
        return _command(match[1].lower(), match[2] or "", prefixes)
    slash = _SLASH.match(stripped)
    if slash and f"/{slash[1].lower()}" == SLASH:
        return slash_request(slash[2] or "", prefixes)
    if slash and slash[1].lower() in WORDS:
        return _command(slash[1].lower(), slash[2] or "", ())
    if match := _PREFIX.match(stripped):
        if (name := match[1].lower()) in prefixes:
            return _prompt(match[2], name)
        if name in WORDS and WORDS[name].colon:
            return Command(name=name, argument=match[2].strip())
    return Prompt(text=text)


def is_plain(text: str) -> bool:
    """Whether the text is a prompt for the default agent, whatever words name agents here."""
    stripped = text.strip()
    return not any(pattern.match(stripped) for pattern in (_BANG, _SLASH, _PREFIX))


def slash_request(text: str, prefixes: Collection[str] = ()) -> Request:
    """The request in ``/butler text``; without text it asks for help."""
    word, _, argument = text.strip().partition(" ")
    return _command(word.lower().lstrip("!/") or "help", argument, prefixes)


def _prompt(text: str, prefix: str) -> Prompt:
    """Code marks around a command are dropped: a shell would treat them as a substitution."""
    if prefix == SHELL_PREFIX and (match := _MARKED.fullmatch(text.strip())):
        text = match[1] or match[2]
    return Prompt(text=text, prefix=prefix)


def _command(name: str, argument: str, prefixes: Collection[str]) -> Request:
    """A command that is a prompt for an agent, if its argument is valid; otherwise its usage is shown. A prefix that is
    not a command takes anything that follows it."""
    argument = argument.strip()
    is_prefix = name in prefixes and name not in WORDS
    word = None if is_prefix else word_of(name)
    if word is not None and word.with_argument and argument:
        word = WORDS[word.with_argument]
    chooses = word is not None and word.chooses and len(argument.split()) < 2
    if word is not None and word.prefix and word.takes(argument) and not chooses:
        return _prompt(word.text or argument, word.prefix)
    if is_prefix and argument:
        return _prompt(argument, name)
    return Command(name=word.name if word is not None else name, argument=argument)
