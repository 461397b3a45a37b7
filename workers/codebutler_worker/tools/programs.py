"""Programs in the sandbox, for tools: without network unless requested; each runs to its end."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.egress.hosts import HostPort
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.prelude import hint
from codebutler_worker.sandbox.process import run_to_end
from codebutler_worker.tools.tool import ToolError
from codebutler_worker.tree.tree import environment

TIMED_OUT = 124
"""timeout(1)'s exit code."""
MERGED_OUTPUT = ("/bin/sh", "-c", 'exec "$@" 2>&1', "tool")
PASSED_VARIABLES = frozenset({"LC_ALL", "TZ"})
# Nobody is there to page, to type in git's editor, or to enter a password.
UNATTENDED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}


def tool_policy(
    workdir: Path, home: Path, path: str, agent_env: Mapping[str, str], conversation: str
) -> SandboxPolicy:
    """What a tool's program may see: the checkout and the system. No keys and no other variables; network access, if
    any, is added when the program starts."""
    passed = {name: value for name, value in agent_env.items() if name in PASSED_VARIABLES}
    env = {**environment(), **UNATTENDED, "PATH": path, "TERM": "dumb", **passed}
    return SandboxPolicy(workdir=workdir, home=home, env=env, network="none", conversation=conversation)


class ProgramOutput(Struct, frozen=True):
    """A program that has ended: its output (stdout and stderr mixed) and exit code. ``note`` is one line about a limit
    it reached, "" if none."""

    data: bytes
    exit_code: int
    truncated: bool = False
    note: str = ""

    @property
    def output(self) -> str:
        """The output decoded as UTF-8, replacing what is not."""
        return self.data.decode(errors="replace")


class SandboxPrograms:
    """Starts programs in one working directory. ``network_policy``: for those that need network, None = none;
    ``refused``: hosts that they asked for and may not reach; ``container``: the last program's, "" if none."""

    def __init__(
        self, sandbox: Sandbox, policy: SandboxPolicy, network_policy: NetworkPolicy | None = None
    ) -> None:
        self.refused: list[HostPort] = []
        self.container = ""
        self._sandbox = sandbox
        self._policy = policy
        self._no_network = NetworkPolicy("none")
        self._network_policy = network_policy or self._no_network

    async def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes = b"",
        limit_bytes: int = 65_536,
        limit_s: float = 60.0,
        network: bool = False,
    ) -> ProgramOutput:
        """Run a program. After ``limit_s`` it is ended with exit code 124; a newline is added to ``stdin``. Raises
        ToolError if it cannot be started."""
        if any("\0" in word for word in argv):
            raise ToolError("an argument must not contain a NUL byte")
        network_policy = self._network_policy if network else self._no_network
        async with await network_policy.open(self._policy.workdir) as access:
            launch = self._sandbox.wrap((*MERGED_OUTPUT, *argv), access.through(self._policy))
            try:
                ended = await run_to_end(launch, stdin=stdin, limit_bytes=limit_bytes, limit_s=limit_s)
            except AgentUnavailableError as error:
                raise ToolError(str(error)) from error
            finally:
                self.refused += access.refused
        self.container = ended.container
        if ended.code is None:
            return ProgramOutput(ended.output, TIMED_OUT, note=f"it was stopped after {limit_s:g} s")
        output_note = "it wrote too much, and was stopped" if ended.cut else ""
        return ProgramOutput(ended.output, ended.code, ended.cut, ended.limit_hit or output_note)


# What a terminal would show, as text of limited length. Pure.

HEAD_CHARS = 6_000
TAIL_CHARS = 18_000
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
_OTHERS = re.compile(r"[\x00-\x07\x0b-\x1a\x1c-\x1f\x7f]")


def strip_escapes(text: str) -> str:
    """The text without escape sequences; an overwritten line is shown as last written."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text or "\b" in text:
        text = "\n".join(_visible_line(line) for line in text.split("\n"))
    return _OTHERS.sub("", text).replace("\x1b", "")


def shorten_output(text: str) -> tuple[str, bool]:
    """The beginning and the end of a program's output, with a hint if the sandbox got in its way, and whether something
    is left out."""
    text = strip_escapes(text).rstrip()
    hint_line = f"\n({hint(text)})" if hint(text) else ""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text + hint_line, False
    omitted = len(text) - HEAD_CHARS - TAIL_CHARS
    shortened = f"{text[:HEAD_CHARS]}\n[… {omitted} characters are left out …]\n{text[-TAIL_CHARS:]}"
    return shortened + hint_line, True


def clip_line(line: str, max_chars: int) -> str:
    """The beginning of a line, and how much is left out."""
    more = len(line) - max_chars
    return line if more <= 0 else f"{line[:max_chars]} [… {more} more characters]"


def _visible_line(line: str) -> str:
    chars: list[str] = []
    for char in line.rstrip("\r").rpartition("\r")[2]:
        if char != "\b":
            chars.append(char)
        elif chars:
            chars.pop()
    return "".join(chars)


MAX_LINES = 200
MAX_DIFFED_CHARS = 400_000
"""Comparing much larger texts takes seconds."""


def difference(path: str, before: str, after: str) -> str:
    """The diff between two versions of a file."""
    if before == after:
        return "(nothing changed)"
    old, new = before.split("\n"), after.split("\n")
    if len(before) + len(after) > MAX_DIFFED_CHARS:
        return f"({len(new)} lines)"
    lines = list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""))
    listed = lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        listed.append(f"… and {len(lines) - MAX_LINES} more lines")
    return "\n".join(listed) or "(only line ends changed)"
