"""What a person's text asks for: a Request (a command, a prompt for a named agent, or plain text). Pure.

``!command …`` anywhere a message may be, ``/butler command …`` as a slash command or as text, or a message that
begins with ``/command``; some also as ``command: …``. ``prefix: text`` names an agent, and so do ``!prefix text`` and
``/butler prefix text``. Everything else is a prompt for the default agent. The commands are those of
``codebutler.domain.commands``; some of them are prompts for a built-in agent.

Keyboards of phones and other languages write a command differently: ``！status``, ``!new–repo``, ``! status``,
``!stop.``, ``claude : why``, ``run: echo “hi”``. These mean the same.
"""

from __future__ import annotations

import re
import string
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
# Marks of direction and joiners, which some keyboards put before a message.
_INVISIBLE = (
    "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_BANG = re.compile(
    rf"[!\uff01](?P<space>\s*)(?P<name>[a-z][a-z{_DASHES}-]*)(?P<end>[.,;:?!\u2026\uff1a]*)(?:\s+(?P<rest>.*))?$",
    re.IGNORECASE | re.DOTALL,
)
_SLASH = re.compile(r"/([a-z][a-z-]*)(?:\s+(.*))?$", re.IGNORECASE | re.DOTALL)
_MARKED = re.compile(r"```\n?([^`]+?)\n?```|`([^`\n]+)`")
_PREFIX = re.compile(r"([a-z][a-z0-9_-]*)[ \u00a0\u202f]?[:\uff1a]\s*(.*)$", re.IGNORECASE | re.DOTALL)
# Plain quotes and escapes stay as they are; typographic characters outside them are what a phone made of plain ones.
_TYPOGRAPHIC = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""
    r"""|[\u201c\u201d\u201e](?P<double>[^\u201c\u201d\u201e"]*)[\u201c\u201d\u201e]"""
    r"""|\u2018(?P<single>[^\u2018\u2019']*)\u2019"""
    rf"""|(?<!\S)(?P<dash>[{_DASHES}]+)(?=\w)|(?P<space>[\u00a0\u202f])|(?P<dots>\u2026)""",
    re.DOTALL,
)


def request_of(event: Event, prefixes: Collection[str]) -> Request:
    """The request in an event; ``prefixes`` are the lower-case words that name an agent here. A leading ``/path`` that
    is not a command stays a prompt."""
    if isinstance(event, SlashCommand):
        return slash_request(event.text, prefixes)
    if not isinstance(event, MessagePosted | MessageEdited):
        return NoRequest()
    stripped = _bare(event.text)
    if (match := _BANG.match(stripped)) and (name := _name_in(match, prefixes)):
        return _command(name, match["rest"] or "", prefixes)
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
    return Prompt(text=event.text)


def is_plain(text: str) -> bool:
    """Whether the text is a prompt for the default agent, whatever words name agents here."""
    stripped = _bare(text)
    return not any(pattern.match(stripped) for pattern in (_BANG, _SLASH, _PREFIX))


def _bare(text: str) -> str:
    """The text without what surrounds it: space, invisible characters, and code marks around a command."""
    stripped = text.strip(_INVISIBLE + string.whitespace + "\u00a0\u3000")
    marked = _MARKED.fullmatch(stripped)
    inner = ((marked[1] or marked[2]) if marked else "").strip()
    return inner if inner.startswith("!") else stripped


def _name_in(match: re.Match[str], prefixes: Collection[str]) -> str:
    """The command's name after ``!``; "" if this is a sentence that begins with an exclamation mark."""
    name = re.sub(f"[{_DASHES}]", "-", match["name"].lower())
    is_known = word_of(name) is not None or name in prefixes
    if match["space"]:
        return name if is_known and not match["rest"] else ""
    return name if is_known or not match["end"] else ""


def slash_request(text: str, prefixes: Collection[str] = ()) -> Request:
    """The request in ``/butler text``; without text it asks for help."""
    word, _, argument = text.strip().partition(" ")
    return _command(word.lower().lstrip("!/") or "help", argument, prefixes)


def _prompt(text: str, prefix: str) -> Prompt:
    """Code marks around a shell command are dropped, a shell would treat them as a substitution; in them every
    character counts as written."""
    if prefix == SHELL_PREFIX:
        match = _MARKED.fullmatch(text.strip())
        text = (match[1] or match[2]) if match else _TYPOGRAPHIC.sub(_plain, text)
    return Prompt(text=text, prefix=prefix)


def _plain(match: re.Match[str]) -> str:
    """What was typed before a keyboard replaced it. iOS makes a dash of two hyphens."""
    if (double := match["double"]) is not None:
        return '"' + re.sub("[\u2018\u2019]", "'", double) + '"'
    if (single := match["single"]) is not None:
        return f"'{single}'"
    if dash := match["dash"]:
        return "".join("--" if each == "\u2014" else "-" for each in dash)
    if match["space"]:
        return " "
    return "..." if match["dots"] else match[0]


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
