"""Text to Request: is this one of our words, a named agent's prompt, or plain text? Pure.

``!word …`` anywhere a message may stand, ``/butler word …`` as a slash command or as text, or a message that
begins with ``/word``. ``prefix: text`` names an agent, and so do ``!prefix text`` and ``/butler prefix text``.
Everything else is a prompt for the default agent. The words are those of ``codebutler.domain.commands``; some of them
are prompts for an agent of ours.
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
    """What the event asks for; ``prefixes`` are the lower-case words that name an agent here."""
    if isinstance(event, SlashCommand):
        return slash_request(event.text, prefixes)
    if isinstance(event, MessagePosted | MessageEdited):
        return text_request(event.text, prefixes)
    return NoRequest()


def text_request(text: str, prefixes: Collection[str]) -> Request:
    """What a message's text asks for. A leading ``/path`` that is none of our words stays a prompt."""
    stripped = text.strip()
    if match := _BANG.match(stripped):
        return _command(match[1].lower(), match[2] or "", prefixes)
    slash = _SLASH.match(stripped)
    if slash and f"/{slash[1].lower()}" == SLASH:
        return slash_request(slash[2] or "", prefixes)
    if slash and slash[1].lower() in WORDS:
        return _command(slash[1].lower(), slash[2] or "", ())
    if (match := _PREFIX.match(stripped)) and match[1].lower() in prefixes:
        return _prompt(match[2], match[1].lower())
    return Prompt(text=text)


def is_plain(text: str) -> bool:
    """Whether the text is a prompt for the default agent and nothing else, whatever words name agents here."""
    stripped = text.strip()
    return not any(pattern.match(stripped) for pattern in (_BANG, _SLASH, _PREFIX))


def slash_request(text: str, prefixes: Collection[str] = ()) -> Request:
    """What ``/butler text`` asks for; nothing at all asks for help."""
    word, _, argument = text.strip().partition(" ")
    return _command(word.lower().lstrip("!/") or "help", argument, prefixes)


def _prompt(text: str, prefix: str) -> Prompt:
    """A command in code marks is the command: to a shell the marks would be a substitution."""
    if prefix == SHELL_PREFIX and (match := _MARKED.fullmatch(text.strip())):
        text = match[1] or match[2]
    return Prompt(text=text, prefix=prefix)


def _command(name: str, argument: str, prefixes: Collection[str]) -> Request:
    """A word is a prompt for the agent behind it if it is said as it has to be; otherwise its usage is told. A prefix
    that is none of our words is one with whatever follows it."""
    argument = argument.strip()
    is_prefix = name in prefixes and name not in WORDS
    word = None if is_prefix else word_of(name)
    if word is not None and word.prefix and word.takes(argument):
        return _prompt(word.text or argument, word.prefix)
    if is_prefix and argument:
        return _prompt(argument, name)
    return Command(name=word.name if word is not None else name, argument=argument)
