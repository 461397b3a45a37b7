"""The commands: the one table behind ``!word``, ``/butler word``, ``/word``, ``!help``, completion, the Slack app and
the docs. Whoever adds one adds an entry here and writes its handler (see CONTRIBUTING.md).

Pure, and imports nothing of ours. Both processes read it: to tell a word from a prompt, who may say it, and to do it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

SLASH = "/butler"
IN_THREADS = (
    f"Slack takes slash commands only outside threads. In a thread write `!word`, not `{SLASH} word`."
)


@dataclass(frozen=True, slots=True)
class Word:
    """One of our words. ``usage`` is its argument as people read it, ``pattern`` what that must match as a whole
    (any case); ``more`` says what one line does not; ``aliases`` mean the same after ``!`` and ``/butler``.

    ``runs``: the process that does it. ``handler``: the function that does it, where that is not ``run`` in the file
    of its name (``runs.kill``), below ``workers/codebutler_worker/commands/`` or ``codebutler/parent/commands/``.
    ``direct``: the parent's function that answers it, alone, in a direct message for all repositories; it needs no
    mark there. ``may``: who may say it, as ``codebutler.config.permission`` has it; an agent that is meant is judged
    once it is known.

    ``prefix``: it is a prompt for the agent of that name, with ``text`` if it takes no argument, and the agent's rule
    allows it. ``shown``: its answer to a slash command is for the whole channel, not only for whoever asked.
    """

    name: str
    gist: str
    usage: str = ""
    pattern: str = ""
    more: str = ""
    prefix: str = ""
    text: str = ""
    shown: bool = False
    aliases: tuple[str, ...] = ()
    handler: str = ""
    runs: Literal["worker", "parent"] = "worker"
    direct: str = ""
    may: Literal["command", "skill", "continue", "undo"] = "command"

    @property
    def done_by(self) -> Sequence[str]:
        """The file and the function that do it; none for what an agent does."""
        found = self.handler or ("" if self.prefix else f"{self.name}.run")
        return found.split(".") if found else ()

    @property
    def about(self) -> str:
        """What more there is to say of it."""
        also = f"Also {', '.join(f'`!{alias}`' for alias in self.aliases)}." if self.aliases else ""
        return f"{self.more} {also}".strip()

    @property
    def example(self) -> str:
        """The word as it is written: ``!stop [all]``."""
        return f"!{self.name} {self.usage}".rstrip()

    def takes(self, argument: str) -> bool:
        """Whether ``argument`` is one that the word knows."""
        return re.fullmatch(self.pattern, argument.strip(), re.IGNORECASE | re.DOTALL) is not None


ALL = (
    Word(
        "help",
        "what you can say here",
        "[WORD]",
        r"!?[\w-]*",
        "With a word: what that one does.",
        direct="direct.usage",
        handler="showing.usage",
    ),
    Word("ping", "is anybody there?", handler="showing.ping"),
    Word(
        "status",
        "show what is running and what is waiting",
        more="The agent and its model, every run that is not over, what was used today, and the sandbox.",
        direct="direct.status",
        handler="showing.status",
    ),
    Word(
        "list",
        "the latest conversations",
        more="Each with its state, its age and a link to its thread.",
        handler="showing.latest",
        direct="direct.latest",
    ),
    Word(
        "new",
        "start a new conversation",
        more="In a thread, the next message starts with a fresh session. Outside threads each message does anyway.",
        handler="runs.new",
    ),
    Word(
        "continue",
        "resume interrupted or stopped work",
        more="In a thread, its last run. Outside threads, the newest ones that can continue, to choose from.",
        shown=True,
        handler="runs.resume",
        may="continue",
        aliases=("resume",),
    ),
    Word(
        "reset",
        "forget this conversation",
        more="The next message in the thread starts with a fresh session.",
        handler="runs.reset",
    ),
    Word(
        "stop",
        "stop running and cancel queued work",
        "[all]",
        "(all)?",
        "In a thread, what belongs to it. With `all`, or outside threads, everything in the channel. "
        "A stopped conversation can go on.",
        handler="runs.stop",
    ),
    Word(
        "kill",
        "stop at once, by force",
        "[all]",
        "(all)?",
        "For what `!stop` does not end.",
        handler="runs.kill",
    ),
    Word(
        "output",
        "repeat the full answer",
        more="The full text of the last run in the thread, or of the channel; as a file when it is long.",
        handler="showing.output",
    ),
    Word(
        "agent",
        "give the built-in agent a task",
        "TASK",
        ".+",
        "The same as `agent: TASK`: it works over many steps by itself, and shows its plan.",
        prefix="agent",
        shown=True,
    ),
    Word(
        "claude", "ask Claude Code", "TASK", ".+", "The same as `claude: TASK`.", prefix="claude", shown=True
    ),
    Word("kimi", "ask Kimi Code", "TASK", ".+", "The same as `kimi: TASK`.", prefix="kimi", shown=True),
    Word(
        "c", "run one shell command", "COMMAND", ".+", "The same as `run: COMMAND`.", prefix="run", shown=True
    ),
    Word(
        "create-image",
        "generate an image",
        "DESCRIPTION",
        ".+",
        "For example `!create-image a lighthouse at dusk, watercolour`.",
        prefix="image",
        shown=True,
        aliases=("image",),
    ),
    Word(
        "logs",
        "show the logs of sessions",
        "[ID [PART[-PART]] | list | tail [N]]",
        r"|list|tail( \d{1,6})?|[\w.-]+( \d{1,5}(-\d{1,5})?)?",
        "`!logs tail N` shows the last N lines of output. A log above 20 MB comes in parts, at most 25 at once: "
        "`!logs ID 3-7` sends those.",
        shown=True,
    ),
    Word(
        "jobs",
        "list scheduled jobs and timers",
        "[run | pause | resume NAME | cancel ID]",
        r"|(run|pause|resume|cancel)\s+\S+",
        "Jobs are defined in `.codebutler/jobs.yaml`. `cancel` cancels a timer.",
        handler="schedule.jobs",
        runs="parent",
    ),
    Word(
        "in",
        "send a message later",
        "2h30m TEXT",
        r".+",
        "TEXT may be any message or command: `!in 2h run the tests again`, `!in 10m run: make deploy`.",
        shown=True,
        handler="schedule.later",
        runs="parent",
    ),
    Word(
        "at",
        "send a message at a set time",
        "[DATE] 18:00 TEXT",
        r".+",
        "The machine's own time.",
        shown=True,
        handler="schedule.at",
        runs="parent",
    ),
    Word(
        "memory",
        "show what is remembered about this repository",
        "[forget N | undo]",
        r"|forget\s+\d{1,4}|undo",
        "Each fact with its age and the thread it comes from. `undo` takes the last change back; say it again to redo "
        "it.",
        handler="knowledge.memory",
    ),
    Word(
        "skills",
        "list skills",
        "[NAME WHAT]",
        r"|[a-z0-9][a-z0-9-]*(\s.*)?",
        "`!skills review-diff the last commit` has the default agent do it that way. See `codebutler skills`.",
        shown=True,
        may="skill",
        handler="knowledge.skills",
    ),
    Word(
        "agents",
        "list the available agents",
        more="Each with its version, and whether it is ready to work.",
        handler="showing.agents",
    ),
    Word(
        "diff",
        "show what has changed in the working tree",
        "[run]",
        "(run|turn)?",
        "Against the last commit, new files included. With `run`, what the last run here changed.",
        handler="changes.diff",
    ),
    Word(
        "undo",
        "undo the last run's changes",
        more="Shows what would be put back, and asks. What was changed since stays, and so do commits; ignored "
        "files and files above 20 MB are not covered. Say it again to redo it.",
        shown=True,
        may="undo",
        handler="changes.undo",
    ),
    Word(
        "checks",
        "run the repository's checks",
        more="What `checks.command` says, otherwise `make check`, `make test`, `npm test` or `pytest`, whichever "
        "the repository has. With `authorization.rules`, the prefix `checks` allows it.",
        prefix="checks",
        text="checks",
        shown=True,
        handler="changes.checks",
    ),
)

WORDS: Mapping[str, Word] = MappingProxyType({word.name: word for word in ALL})
DIRECT: Mapping[str, Word] = MappingProxyType({word.name: word for word in ALL if word.direct})
ALIASES: Mapping[str, str] = MappingProxyType({alias: word.name for word in ALL for alias in word.aliases})


def word_of(name: str) -> Word | None:
    """The word of that name, or with that alias."""
    return WORDS.get(ALIASES.get(name, name))


def visible_only_to(user: str, name: str, argument: str) -> str:
    """Who alone sees the answer to a slash command; "" = the whole channel."""
    word = WORDS.get(name)
    return "" if word is not None and word.shown and word.takes(argument) else user


def completions() -> tuple[tuple[str, str], ...]:
    """What may be typed for a word, after its mark, and what that does: for whatever completes it."""
    return tuple((name, word.gist) for word in ALL for name in (word.name, *word.aliases))


def usage_error(word: Word) -> str:
    """One line for an argument that the word does not know."""
    if word.usage:
        return f"Say it as `{word.example}`: {word.gist}."
    return f"`{word.example}` takes no argument: {word.gist}."


def nearest(name: str) -> str | None:
    """The word that was probably meant."""
    lower = name.lower()
    names = [*WORDS, *ALIASES]
    near = difflib.get_close_matches(lower, names, n=1)
    if near:
        return near[0]
    begun = [name for name in names if len(lower) > 1 and name.startswith(lower)]
    return begun[0] if len(begun) == 1 else None


def usage_hint() -> str:
    """What Slack shows beside the slash command while it is typed (at most 1,000 characters)."""
    return " | ".join(f"{word.name} {word.usage}".rstrip() for word in ALL if "|" not in word.usage)


def as_table() -> str:
    """The words as a Markdown table, for the documentation."""
    return "\n".join(("| word | does |", "|---|---|", *(_row(word) for word in ALL)))


def _row(word: Word) -> str:
    example = word.example.replace("|", "\\|")
    return f"| `{example}` | {_sentence(word.gist)}{' ' + word.about if word.about else ''} |"


def _sentence(gist: str) -> str:
    return f"{gist[0].upper()}{gist[1:]}{'' if gist.endswith('?') else '.'}"
