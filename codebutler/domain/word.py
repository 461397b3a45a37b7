"""An entry in the table of commands. Pure; imports none of our modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct


class Word(Struct, frozen=True):
    """One of our commands.

    ``usage`` is its argument as shown to people, ``pattern`` what the whole argument must match (ignoring case);
    ``more`` adds to the one-line description; ``aliases`` mean the same after ``!`` and ``/butler``. ``runs``: the
    process that runs it. ``handler``: its function, if that is not ``run`` in the file of the same name
    (``runs.kill``), below ``workers/codebutler_worker/commands/`` or ``codebutler/parent/commands/``. ``direct``: the
    parent's function that answers it, alone, in a direct message for all repositories; it needs no mark there.
    ``may``: who may use it, as defined in ``codebutler.config.permission``; permission for an agent is checked once
    the agent is known. ``chooses``: without an argument, or with a single word, it is a command, not a prompt.
    ``prefix``: it is a prompt for the agent of that name, with ``text`` if it takes no argument, and the agent's rule
    allows it. ``shown``: its answer to a slash command is for the whole channel, not only for the user.
    ``colon``: ``name: argument`` means the same. ``with_argument``: the command that it becomes with an argument.
    ``anywhere``: the parent also runs it where no
    repository is meant.
    """

    name: str
    gist: str
    usage: str = ""
    pattern: str = ""
    more: str = ""
    prefix: str = ""
    text: str = ""
    chooses: bool = False
    shown: bool = False
    aliases: tuple[str, ...] = ()
    handler: str = ""
    runs: Literal["worker", "parent"] = "worker"
    direct: str = ""
    may: Literal["command", "skill", "continue", "undo", "commit", "merge", "push", "new", "move"] = "command"
    with_argument: str = ""
    colon: bool = False
    anywhere: bool = False

    @property
    def done_by(self) -> Sequence[str]:
        """The file and the function that run it; empty for what an agent does."""
        found = self.handler or ("" if self.prefix else f"{self.name.replace('-', '_')}.run")
        return found.split(".") if found else ()

    @property
    def about(self) -> str:
        """Its description, beyond the first line."""
        also = f"Also {', '.join(f'`!{alias}`' for alias in self.aliases)}." if self.aliases else ""
        return f"{self.more} {also}".strip()

    @property
    def example(self) -> str:
        """The command as typed: ``!stop [all]``."""
        return f"!{self.name} {self.usage}".rstrip()

    def takes(self, argument: str) -> bool:
        """Whether the command accepts ``argument``."""
        return re.fullmatch(self.pattern, argument.strip(), re.IGNORECASE | re.DOTALL) is not None
