"""ShellTerminal: one bash in its own terminal in the sandbox, which keeps its directory and variables from call to call
and never blocks the event loop."""

from __future__ import annotations

import base64
import re
import secrets
import threading

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.platform.system import this_system
from codebutler.platform.tasks import wait_for
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.hosts import HostPort
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.sandbox.pty import INTERRUPT, PtyProcess
from codebutler_worker.tools.programs import shorten_output
from codebutler_worker.tools.tool import ToolError

BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
START_S = 60.0
TICK_S = 0.05
BACKLOG_BYTES = 4 * 2**20
BUSY = "a command still runs: ask for more of its output, type into it, or send it CTRL_C"
IDLE = "no command runs: give one"
SHELL_ENDED = "the shell ended; the next command gets a new one"


class ShellOutput(Struct, frozen=True):
    """The terminal's output since the last call. ``exit_code`` is None while the command is still running; ``cwd`` is
    the shell's directory."""

    text: str
    exit_code: int | None = None
    cwd: str = ""
    truncated: bool = False
    container: str = ""


class ShellTerminal:
    """Starts bash at the first command, in ``cwd`` ("" = the working directory); ``close`` ends everything it started.
    ``network_policy`` is its network access, None = none."""

    def __init__(
        self,
        sandbox: Sandbox,
        policy: SandboxPolicy,
        clock: Clock,
        cwd: str = "",
        network_policy: NetworkPolicy | None = None,
    ) -> None:
        self.cwd = cwd or str(policy.workdir)
        self._refused: list[HostPort] = []
        self._network_policy = network_policy or NetworkPolicy("none")
        self._access: NetworkAccess | None = None
        self._sandbox = sandbox
        self._policy = policy
        self._clock = clock
        self._process: PtyProcess | None = None
        self._secret = ""
        self._container = ""
        self._reader = MarkReader("")
        self._backlog = UnreadOutput()
        self._number = 0
        self._busy = False

    @property
    def refused(self) -> tuple[HostPort, ...]:
        """The hosts it asked for so far and may not reach."""
        return (*self._refused, *(self._access.refused if self._access is not None else ()))

    @property
    def is_used(self) -> bool:
        """Whether it was used at all."""
        return bool(self._secret)

    async def run(self, command: str, wait_s: float) -> ShellOutput:
        """Run a command and collect output until it ends, at most ``wait_s``. Raises ToolError."""
        if self._busy:
            raise ToolError(BUSY)
        process = await self._start()
        process.tidy()
        self._reader.forget()
        self._number += 1
        self._busy = True
        if not await process.write(command_lines(self._secret, self._number, command)):
            raise ToolError("the shell does not accept input: send it CTRL_C")
        return await self._listen(process, wait_s)

    async def more(self, wait_s: float) -> ShellOutput:
        """Collect more output of the running command. Raises ToolError if there is none."""
        return await self._listen(self._running_process(), wait_s)

    async def type(self, text: str) -> None:
        """Type into the running command. Raises ToolError."""
        process = self._running_process()
        if not await process.write(text.replace("\n", "\r").encode(errors="replace")):
            raise ToolError("the command does not read its input")

    async def interrupt(self) -> None:
        """Send Ctrl-C to the running command. Raises ToolError if there is none."""
        await self._running_process().write(INTERRUPT)

    async def close(self) -> None:
        """End the shell and everything it started; the next command gets a new one in the same directory."""
        process, self._process = self._process, None
        access, self._access = self._access, None
        self._busy = False
        if process is not None:
            await process.stop(term_s=0.2)
        if access is not None:
            self._refused += access.refused
            await access.close()

    def _running_process(self) -> PtyProcess:
        if self._process is None or not self._busy:
            raise ToolError(IDLE)
        return self._process

    async def _start(self) -> PtyProcess:
        if self._process is not None:
            return self._process
        self._secret = secrets.token_hex(8)
        self._reader, self._backlog, self._number = MarkReader(self._secret), UnreadOutput(), 0
        access = self._access = await self._network_policy.open(self._policy.workdir)
        try:
            launch = self._sandbox.wrap(
                (*this_system().restores_signals, *BASH), access.through(self._policy)
            )
            process = self._process = await PtyProcess(launch, self._backlog.push).start()
        except AgentUnavailableError as error:
            await self.close()
            raise ToolError(str(error)) from error
        except SandboxUnavailableError:
            await self.close()
            raise
        self._container = process.container
        await process.write(setup_line(self._secret, self.cwd))
        if (await self._listen(process, START_S)).exit_code is None or self._process is None:
            await self.close()
            raise ToolError("bash does not start here: use other tools")
        return process

    async def _listen(self, process: PtyProcess, wait_s: float) -> ShellOutput:
        deadline_s = self._clock.monotonic() + wait_s
        while True:
            process.output.clear()
            has_ended = process.ended.is_set()
            self._reader.feed(self._backlog.take())
            mark = self._reader.mark
            if mark is not None and mark.number == self._number:
                self._busy, self.cwd = False, mark.cwd
                return self._output(mark.exit_code)
            if has_ended:
                return await self._on_end(process)
            remaining_s = deadline_s - self._clock.monotonic()
            if self._reader.started_number < self._number:
                # Ctrl-C would discard input that the shell has not read yet.
                remaining_s = max(remaining_s, TICK_S)
            if remaining_s <= 0:
                return self._output(None)
            await wait_for(self._clock, process.output, remaining_s)

    async def _on_end(self, process: PtyProcess) -> ShellOutput:
        output = self._output(process.returncode or 0)
        note = process.limit_hit or SHELL_ENDED
        await self.close()
        return replace(output, text=f"{output.text}\n({note})".lstrip("\n"))

    def _output(self, exit_code: int | None) -> ShellOutput:
        text, flood = self._reader.take()
        text, cut = shorten_output(text)
        return ShellOutput(text, exit_code, self.cwd, truncated=cut or flood, container=self._container)


class UnreadOutput:
    """Output that the reader thread has read and nobody has looked at yet; of a flood it keeps the end."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._lock = threading.Lock()

    def push(self, data: bytes, newline_returns: bool) -> None:  # noqa: ARG002 - the terminal's sink
        """Called on the reader's thread."""
        with self._lock:
            self._data += data
            del self._data[:-BACKLOG_BYTES]

    def take(self) -> bytes:
        """Return everything, oldest first, and empty the buffer."""
        with self._lock:
            data, self._data = self._data, bytearray()
        return bytes(data)


# Where a command ends in a shell's output. Pure.
#
# Before each prompt the shell writes a mark: a record separator, a secret word, the number of the command, its exit
# code, the directory, a record separator. Before it runs a command it writes one with ``begun``. Everything else is the
# command's output.

SEPARATOR = b"\x1e"
MARK_BYTES = 8192
"""The longest mark: a path has at most 4096 bytes."""
HEAD_BYTES = 64 * 2**10
TAIL_BYTES = 256 * 2**10
LINE_CHARS = 3000
"""Less than what a terminal buffers of one line."""


class Mark(Struct, frozen=True):
    """The shell is back at its prompt."""

    number: int
    exit_code: int
    cwd: str


class MarkReader:
    """Reads the shell's output in pieces. ``word`` is the secret word in its marks."""

    def __init__(self, word: str) -> None:
        self.mark: Mark | None = None
        self.started_number = 0
        self._mark = re.compile(rb"\x1e" + word.encode() + rb" (\d+) (\d+|begun) ([^\x1e]*)\x1e")
        self._open = bytearray()
        self._head = bytearray()
        self._tail = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        """Read a piece; updates ``mark``, the last mark, and ``started_number``, the last command that started."""
        self._open += data
        rest = bytes(self._open)
        while found := self._mark.search(rest):
            self._keep(rest[: found.start()])
            if found[2] == b"begun":
                self.started_number = int(found[1])
            else:
                self.mark = Mark(int(found[1]), int(found[2]), found[3].decode(errors="replace"))
            rest = rest[found.end() :]
        at = rest.rfind(SEPARATOR, max(0, len(rest) - MARK_BYTES))
        complete = rest if at < 0 else rest[:at]
        self._keep(complete)
        self._open = bytearray(rest[len(complete) :])

    def forget(self) -> None:
        """Discard the output so far."""
        self._head.clear()
        self._tail.clear()
        self._skipped = 0

    def take(self) -> tuple[str, bool]:
        """The output since the last call, and whether its middle was cut out."""
        cut = self._skipped > 0
        middle = f"\n[… {self._skipped} bytes are left out …]\n".encode() if cut else b""
        text = (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
        self.forget()
        return text, cut

    def _keep(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[max(0, room) :]
        if (over := len(self._tail) - TAIL_BYTES) > 0:
            del self._tail[:over]
            self._skipped += over


def setup_line(word: str, cwd: str) -> bytes:
    """The first line for the shell: turn off echo and prompts, and write the mark before each prompt."""
    mark = f'printf "\\036{word} %s %s %s\\036" "$__cb_n" "$?" "$PWD"'
    return (
        f"stty -echo; PS1= PS2=; unset HISTFILE; set +H; __cb_n=0; PROMPT_COMMAND='{mark}'; "
        f"cd -- \"$(printf %s '{_encode(cwd)}' | base64 -d)\" 2>/dev/null\n"
    ).encode()


def command_lines(word: str, number: int, command: str) -> bytes:
    """The lines that make the shell run a command: short enough for any terminal, and encoded so that no running
    program can take part of it for input."""
    text = _encode(command)
    pieces = [text[at : at + LINE_CHARS] for at in range(0, len(text), LINE_CHARS)]
    lines = ["__cb_c="] + [f"__cb_c=$__cb_c'{piece}'" for piece in pieces]
    begun = f"__cb_n={number}; printf '\\036{word} {number} begun \\036'"
    lines.append(f'{begun}; eval "$(printf %s "$__cb_c" | base64 -d)"')
    return "".join(f"{line}\n" for line in lines).encode()


def _encode(text: str) -> str:
    return base64.b64encode(text.encode(errors="replace")).decode()
