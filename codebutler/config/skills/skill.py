"""``SKILL.md``: front matter with a name and a description, then the instructions. Pure.

The form is that of other agents' skills, so theirs can be used as they are; keys of theirs that mean nothing here are
passed over. A ``skill.py`` beside it makes it a program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from codebutler.domain.errors import CodeButlerError
from codebutler.text.safe_yaml import decode_yaml

Origin = Literal["bundled", "home", "repo"]
"""Where a skill was found, the weakest first: a later one of the same name takes its place."""

NAME = r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$"
FILE_NAME = "SKILL.md"
PROGRAM_NAME = "skill.py"
MAX_BYTES = 64 * 1024
_FRONT = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?P<front>.*?)^---[ \t]*\r?$\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE
)


class SkillError(CodeButlerError):
    """A skill cannot be used; one line that says what to do."""


_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""Controls, turns of the reading direction, and tags: whoever vouches for a skill reads it without them, an agent with
them."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill. ``program`` is the source of its ``skill.py``, "" if it only instructs."""

    name: str
    description: str
    instructions: str
    origin: Origin = "bundled"
    program: str = ""

    @property
    def kind(self) -> Literal["prompt", "code"]:
        """Whether it instructs or runs."""
        return "code" if self.program else "prompt"


class _Front(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    description: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


def parse_skill(data: bytes, name: str, origin: Origin, program: bytes | None = None) -> Skill:
    """The skill in the directory ``name``. Raises SkillError with what is wrong with its file."""
    source = f"{name}/{FILE_NAME}"
    found = _FRONT.match(_text(data, source))
    if found is None:
        raise SkillError(f"{source}: begin it with a front matter: ---, name, description, ---")
    try:
        front: _Front = decode_yaml(found["front"], _Front)
    except msgspec.DecodeError as error:
        raise SkillError(f"{source}: {' '.join(str(error).split())[:200]}") from None
    if front.name != name:
        raise SkillError(f"{source}: its name is {front.name}, but its directory is called {name}")
    body = found["body"].strip()
    if not body and program is None:
        raise SkillError(f"{source}: write the instructions below the front matter")
    code = "" if program is None else _text(program, f"{name}/{PROGRAM_NAME}")
    return Skill(name, " ".join(front.description.split()), body, origin, code)


def is_name(name: str) -> bool:
    """Whether a skill may be called so."""
    return re.fullmatch(NAME, name) is not None


def template(name: str, description: str) -> str:
    """A new ``SKILL.md`` to fill in."""
    told = description.replace("\n", " ").strip() or "What it does, and when to use it."
    quoted = msgspec.json.encode(told).decode()  # JSON strings are YAML strings
    return f"---\nname: {name}\ndescription: {quoted}\n---\n\nSay step by step what the agent is to do.\n"


PROGRAM_TEMPLATE = '''\
"""Reads {"arguments": "…", "workdir": "…"} from stdin; writes {"text": "…"} to stdout."""

import json
import sys

given = json.load(sys.stdin)
json.dump({"text": f"You said: {given['arguments']}"}, sys.stdout)
'''


def _text(data: bytes, source: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SkillError(f"{source}: not valid UTF-8: save the file as UTF-8") from None
    if found := _UNSEEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise SkillError(
            f"{source}: line {line} holds an invisible character (U+{ord(found[0]):04X}): remove it"
        )
    return text
