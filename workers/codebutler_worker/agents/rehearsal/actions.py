"""What the rehearsal agent does: a few small system programs, each started through the sandbox."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG
from types import MappingProxyType

from msgspec import Struct

from codebutler_worker.agents.rehearsal import language
from codebutler_worker.agents.rehearsal.language import Intent
from codebutler_worker.sandbox.destinations import status_beneath
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.process import Record, run_to_end
from codebutler_worker.tools.tool import ToolError
from codebutler_worker.tree.tree import ENV

DONE = MappingProxyType({"Write": "Wrote", "Append": "Added to", "Replace": "Changed", "Delete": "Deleted"})
MAX_OUTPUT_BYTES = 256 * 2**10
SKIPPED = (".git", ".codebutler", "node_modules", ".venv", "__pycache__")
# A repository's own configuration can name programs for git to run.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
QUESTIONS = {
    "status": ("status", "--short", "--branch"),
    "diff": ("diff", "--no-ext-diff", "--no-textconv", "HEAD"),
    "log": ("log", "--oneline", "--no-decorate", "-n", "20"),
}


class Printed(Struct, frozen=True):
    """A program's output: its exit code, and stdout or, on failure, stderr. ``cut``: there was more."""

    code: int
    text: str
    cut: bool = False


class FoundLines(Struct, frozen=True):
    """Lines that a program found. ``cut``: there are more."""

    lines: list[str]
    cut: bool = False


class Tools:
    """Works in ``workdir``; ``home`` is the sandbox's HOME, which is not kept; ``record`` gets the programs' output.

    Every method raises ToolError with one line, and SandboxUnavailableError.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        workdir: Path,
        home: Path,
        record: Record | None = None,
        conversation: str = "",
    ) -> None:
        self._sandbox = sandbox
        self._record = record
        self._policy = SandboxPolicy(
            workdir=workdir, home=home, env=ENV, network="none", conversation=conversation
        )

    async def files(self, path: str) -> FoundLines:
        """The files below ``path``, sorted."""
        skip = [word for name in SKIPPED for word in ("-name", name, "-prune", "-o")]
        found = await self._run("find", self._target(path), *skip, "-type", "f", "-print")
        lines = _whole_lines(found)
        return FoundLines(sorted(line.removeprefix("./") for line in lines), found.cut)

    async def read(self, path: str) -> Printed:
        """The text of a file."""
        output = await self._run("cat", self._target(path))
        if "\0" in _checked(output):
            raise ToolError(f"{path} is not a text file.")
        return output

    async def search(self, text: str, path: str) -> FoundLines:
        """Lines that contain ``text``, as file:line:text."""
        skip = (f"--exclude-dir={name}" for name in SKIPPED)
        found = await self._run("grep", "-rnIF", *skip, "-e", text, self._target(path))
        # grep(1): 1 = no line was selected.
        lines = [] if found.code == 1 else _whole_lines(found)
        return FoundLines([line.removeprefix("./") for line in lines], found.cut)

    async def git(self, question: str) -> Printed:
        """The output of git status, diff or log."""
        output = await self._run(*GIT, *QUESTIONS[question])
        _checked(output)
        return output

    async def write(self, path: str, text: str) -> None:
        """Write ``text`` to a file, replacing its content, and create its directory if missing."""
        target = self._target(path)
        _checked(await self._run("mkdir", "-p", str(Path(target).parent) or "."))
        _checked(await self._run("tee", target, stdin=text))

    async def append(self, path: str, text: str) -> None:
        """Append ``text`` as separate lines to a file."""
        _checked(await self._run("tee", "-a", self._target(path), stdin=text))

    def require(self, path: str) -> None:
        """Raises ToolError if there is no such file."""
        status = self._status(path)
        if status is None or not S_ISREG(status.st_mode):
            raise ToolError(f"There is no file {path}.")

    async def delete(self, path: str) -> None:
        """Delete a file."""
        _checked(await self._run("rm", self._target(path)))

    async def text(self, path: str) -> str | None:
        """The text of a file that changes, "" if it does not exist; None if it has no text to compare."""
        if self._status(path) is None:
            return ""
        output = await self._run("cat", self._target(path))
        return None if "\0" in _checked(output) or output.cut else output.text

    async def replace(self, path: str, old: str, new: str) -> int:
        """Replace each ``old``; returns how many there were."""
        output = await self._run("cat", self._target(path))
        text = _checked(output)
        if output.cut or "\0" in text or "\ufffd" in text:
            raise ToolError(f"{path} is too large or is not a text file.")
        count = text.count(old)
        if count:
            await self.write(path, text.replace(old, new))
        return count

    async def wait(self, seconds: str) -> None:
        """Do nothing, in a process."""
        _checked(await self._run("sleep", seconds))

    def _target(self, path: str) -> str:
        """The argument for ``path``: never an option. No link is followed, even without a sandbox."""
        if path in (".", "./"):
            return "."
        self._status(path)
        return f"./{path}"

    def _status(self, path: str) -> os.stat_result | None:
        """None if there is no such file."""
        try:
            return status_beneath(self._policy.workdir, path)
        except OSError as error:
            raise ToolError(f"{path}: {error.strerror}.") from error

    async def _run(self, *argv: str, stdin: str = "") -> Printed:
        launch, given = self._sandbox.wrap(argv, self._policy), stdin.removesuffix("\n").encode()
        ended = await run_to_end(launch, stdin=given, limit_bytes=MAX_OUTPUT_BYTES, record=self._record)
        if ended.code:
            return Printed(ended.code, ended.limit_hit or ended.stderr)
        return Printed(0, ended.output.decode(errors="replace"), cut=ended.cut)


def _whole_lines(output: Printed) -> list[str]:
    """The last line of output that was cut may be incomplete."""
    lines = _checked(output).splitlines()
    return lines[:-1] if output.cut else lines


def _checked(output: Printed) -> str:
    if output.code != 0:
        lines = output.text.strip().splitlines()
        raise ToolError(lines[-1] if lines else f"exit code {output.code}")
    return output.text


def check(intent: Intent, tools: Tools) -> None:
    """Raises ToolError for what cannot be done, before a person is asked about it."""
    match intent:
        case Intent("Delete", path):
            tools.require(path)
        case Intent("Refused", path):
            raise ToolError(f"{path} is off limits: I only touch files of this repository.")
        case Intent("Unknown", _, text):
            raise ToolError(language.not_understood(text))


async def carried_out(intent: Intent, tools: Tools, earlier: Sequence[str]) -> str:
    """Carry out what has passed ``check``; returns the answer. Raises ToolError and SandboxUnavailableError."""
    match intent:
        case Intent("List", path):
            found = await tools.files(path)
            return language.listing(path, found.lines, cut=found.cut)
        case Intent("Attached", path, kind):
            try:
                read = await tools.read(path)
            except ToolError:
                return language.arrived(path, kind)
            return language.content(path, read.text, cut=read.cut)
        case Intent("Read", path):
            read = await tools.read(path)
            return language.content(path, read.text, cut=read.cut)
        case Intent("Search", path, text):
            found = await tools.search(text, path)
            return language.hits(text, found.lines, cut=found.cut)
        case Intent("Git", _, question):
            said = await tools.git(question)
            return language.git(question, said.text, cut=said.cut)
        case Intent("Wait", _, seconds):
            await tools.wait(seconds)
            return f"I waited {seconds} seconds."
        case Intent("Recall"):
            return language.recalled(earlier)
        case Intent("Write" | "Append" | "Replace" | "Delete"):
            return await _changed(intent, tools)
        case _:
            return language.COMMENTED if intent.verb == "Commented" else language.HELP


async def _changed(intent: Intent, tools: Tools) -> str:
    """Change a file; the answer shows the diff."""
    path, text = intent.path, intent.text
    before = await tools.text(path)
    match intent.verb:
        case "Write":
            await tools.write(path, text)
        case "Append":
            await tools.append(path, text)
        case "Delete":
            await tools.delete(path)
        case "Replace":
            if not await tools.replace(path, text, intent.new):
                raise ToolError(f"{path} does not contain {text}; I changed nothing.")
    done = DONE[intent.verb]
    try:
        after = "" if intent.verb == "Delete" else await tools.text(path)
    except ToolError as error:
        raise ToolError(f"{done} `{path}`, but I could not read it again: {error}") from error
    return language.changed(done, path, before, after)
