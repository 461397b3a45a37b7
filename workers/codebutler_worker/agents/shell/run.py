"""Run: one program at its terminal, from its first output to its exit code."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler.platform.tasks import wait_for
from codebutler_worker.agents.backend import GONE, Finished, Output, Text
from codebutler_worker.agents.running import LiveTurn
from codebutler_worker.agents.shell.output import EnvelopeReader, OutputBacklog
from codebutler_worker.agents.shell.screen import TerminalScreen
from codebutler_worker.sandbox.prelude import hint
from codebutler_worker.sandbox.pty import CANONICAL_LINE_BYTES, INTERRUPT, PtyProcess

# A message that is exactly one of these means that key.
KEYS: Mapping[str, bytes] = {
    "^M": b"\r", "^[": b"\x1b", "^I": b"\t", "↑": b"\x1b[A", "↓": b"\x1b[B", "→": b"\x1b[C", "←": b"\x1b[D",
    **{f"^{letter}": bytes([ord(letter) - 64]) for letter in "ABCDEFGHJKLNOPQRSTUVWXYZ\\"},
}  # fmt: skip
FIRST_S = 0.3
QUIET_S = 0.3
TICK_S = 1.0
STOP_GRACE_S = 3.0
PASTED_S = 0.15
NO_INPUT = b"\x04" * 8
"""End-of-file characters in a command's terminal: this many of its programs may ask for input and learn at once that
there is none. A password prompt discards them if they were there before it."""
ENTER = b"\r"
KEPT_LINES = 40
KEPT_CHARS = 3000

HIDDEN_PROMPT = (
    "🔒 It asks for a password, which does not belong in a chat: use a key or a token file, or say `!stop`."
)
WAITS_FOR_KEYS = (
    "⌨️ It waits for keyboard input, which commands do not get: `!stop` ends it. Add programs that need input to "
    "`commands` with `mode` `interactive`."
)
ENDED_AT_PROMPT = "🔒 It asked for a password, which does not belong in a chat: use a key or a token file."
NOT_TYPED = (
    "🔒 Nothing was typed: it asks for a password, which does not belong in a chat. Delete your message."
)
TOO_LONG = f"Nothing was typed: a line may have at most {CANONICAL_LINE_BYTES} bytes here."
NOT_READING = "The program does not read its input. Use `!stop` to interrupt it."

# A program prints this before it turns the echo off.
_PASSWORD = re.compile(r"\b(?:password|pass ?phrase|passcode)(?: for [^:]{1,80})?:\s*\Z", re.IGNORECASE)

Why = Literal["", "stopped", "timeout", "password"]


class Pace(Struct, frozen=True):
    """Seconds: how often output is shown, how long a program may run, how long the echo of the first input may take,
    how long an envelope may stay open, and how long a command that reads keys must be silent before it counts as
    waiting."""

    flush_s: float = 2.0
    limit_s: float = 1800.0
    activation_s: float = 1.5
    unclosed_s: float = 30.0
    keys_s: float = 10.0


class ProgramRun(LiveTurn):
    """One run. ``events`` is its life; ``type``, ``stop`` and ``end`` may be called meanwhile. ``last`` is what it
    shows, ``why`` the reason for its end if it did not end by itself.

    ``envelopes``, for programs with envelopes: then only those are shown.
    """

    def __init__(
        self,
        process: PtyProcess,
        backlog: OutputBacklog,
        clock: Clock,
        pace: Pace,
        *,
        interactive: bool,
        envelopes: EnvelopeReader | None = None,
    ) -> None:
        self.why: Why = ""
        self.last = Output()
        self._process = process
        self._backlog = backlog
        self._clock = clock
        self._pace = pace
        self._interactive = interactive
        self._envelopes = envelopes
        self._terminal = TerminalScreen()
        self._rendering = asyncio.Lock()
        self._rendered: deque[Output] = deque()
        self._fresh = False
        self._eager = True
        self._warned = self._asked_twice = self._waits = False
        self._shown_s = self._began_s = self._spoke_s = clock.monotonic()
        self._ending: asyncio.Task[None] | None = None
        self._skipped_bytes = 0
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)

    async def begin(self, text: str, *, delay: bool) -> None:
        """Type a session's first message once it is ready for it."""
        if self._interactive and text.strip():
            await self._wait(FIRST_S * 5)
            await self._calm(FIRST_S * 5)
            if self._envelopes is not None and delay:
                self._envelopes.ignore_until_s = self._clock.monotonic() + self._pace.activation_s
            await self._press(keys(text))

    async def events(self) -> AsyncGenerator[Output | Text]:
        """What to show, until the program has ended."""
        over = False
        while not over:
            await self._due()
            over = self._process.ended.is_set()
            if self._envelopes is not None:
                for text in self._envelopes.heard(self._clock.monotonic(), over=over):
                    yield Text(text)
            await self._render()
            while self._rendered:
                output = self._rendered.popleft()
                if output != self.last and self._envelopes is None:
                    yield output
                self.last = replace(output, settled=(), fresh=False)
            await self._watch_over()

    async def type(self, text: str) -> str:
        """Type a person's message; "" if that worked, else one line that says why not."""
        data = keys(text)
        asks = self._process.hides_typing or any(_PASSWORD.search(line) for line in self.last.live[-1:])
        if asks and not is_key(text):
            return NOT_TYPED
        if self._process.ended.is_set():
            return GONE
        longest = max(len(line) for line in data.split(b"\r"))
        if self._process.reads_lines and longest > CANONICAL_LINE_BYTES:
            return TOO_LONG
        await self._render()
        self._terminal.turn_page()
        self._backlog.rewind()
        self._fresh = self._eager = True
        self.why = ""
        if not await self._press(data):
            return NOT_READING
        self._process.output.set()
        return ""

    async def stop(self) -> bool:
        """Ctrl-C, after which a session continues (False); a second one, with nothing typed in between, ends it."""
        if self.why == "stopped" or (self._process.hides_typing and not self._interactive):
            await self.end("stopped")
            return True
        self.why = "stopped"
        self._eager = True
        await self._process.write(INTERRUPT)
        if not self._interactive:
            self._ending = asyncio.create_task(self._end_later(), name="end after Ctrl-C")
        return not self._interactive

    async def close(self) -> None:
        """End it, whatever it does."""
        await self.end("stopped")

    async def end(self, why: Why) -> None:
        """End it now; ``last`` keeps what was shown of it at the end."""
        self.why = why
        await self._process.stop()

    def finished(self) -> Finished:
        """How it went."""
        code = self._process.returncode
        exit_code = None if code is None else code if code >= 0 else 128 - code
        text = self._tail()
        if self.why in ("stopped", "timeout"):
            return Finished(ok=False, text=text, reason=self.why, exit_code=exit_code)
        ok = exit_code == 0
        return Finished(ok=ok, text=text, reason="done" if ok else "failed", exit_code=exit_code)

    @property
    def last_note(self) -> str:
        """What to say about its end besides the exit code."""
        if self.why == "password":
            return ENDED_AT_PROMPT
        limit_hit = self._process.limit_hit if self._process.returncode else ""
        return limit_hit or hint(self._tail())

    async def _press(self, data: bytes) -> bool:
        """Type ``data``; False if the program does not read. A program that reads key by key takes input that arrives
        at once for pasted text, and an Enter in it for a new line, so the last Enter is sent separately."""
        words = data.removesuffix(ENTER)
        if self._process.reads_lines or not words or words == data:
            return await self._process.write(data)
        if not await self._process.write(words):
            return False
        await self._clock.sleep(PASTED_S)
        return await self._process.write(ENTER)

    async def _end_later(self) -> None:
        await self._ended_within(STOP_GRACE_S)
        if not self._process.ended.is_set():
            await self.end("stopped")

    async def _due(self) -> None:
        """Wait until there is something to show or to check."""
        await self._wait(TICK_S)
        if self._eager:
            await self._calm(self._pace.flush_s)
            self._eager = False
        else:
            await self._ended_within(self._shown_s + self._pace.flush_s - self._clock.monotonic())
        self._shown_s = self._clock.monotonic()

    async def _calm(self, at_most_s: float) -> None:
        """Wait until no output has come for a moment, so that the answer to the input is complete."""
        until_s = self._clock.monotonic() + at_most_s
        while not self._process.ended.is_set() and self._clock.monotonic() < until_s:
            self._process.output.clear()
            if not await self._wait(QUIET_S):
                return

    async def _render(self) -> None:
        async with self._rendering:
            self._process.output.clear()
            batch = self._backlog.take()
            if batch.head or batch.tail:
                self._spoke_s = self._clock.monotonic()
                await asyncio.to_thread(self._feed, batch.head, batch.skipped_bytes, batch.tail)
            shown = self._terminal.take()
            fresh, self._fresh = self._fresh, False
            note = HIDDEN_PROMPT if self._warned else WAITS_FOR_KEYS if self._waits else ""
            self._kept.extend(shown.settled)
            self._rendered.append(Output(shown.settled, shown.live, fresh, note, self._skipped_bytes))

    def _feed(self, head: bytes, skipped_bytes: int, tail: bytes) -> None:
        self._terminal.feed(head)
        if skipped_bytes:
            self._skipped_bytes += skipped_bytes
            self._terminal.skip()
            # A flood is cut anywhere: begin with a whole line.
            line, newline, rest = tail.partition(b"\n")
            self._terminal.feed(rest if newline else line)

    async def _watch_over(self) -> None:
        """Watch the time limit and password prompts."""
        if self._process.ended.is_set():
            return
        if self._clock.monotonic() - self._began_s >= self._pace.limit_s:
            await self.end("timeout")
            return
        asks = self._process.hides_typing and self._backlog.empty
        # Twice in a row: a program may turn the echo off for a moment.
        sure, self._asked_twice = asks and self._asked_twice, asks
        if sure and not self._interactive:
            await self.end("password")
        elif (sure, self._seems_to_wait) != (self._warned, self._waits):
            self._warned, self._waits = sure, self._seems_to_wait
            self._process.output.set()

    @property
    def _seems_to_wait(self) -> bool:
        """Whether a command uses the terminal for keys (an editor, a pager, a prompt) and has fallen silent."""
        silent = self._clock.monotonic() - self._spoke_s >= self._pace.keys_s
        return silent and not self._interactive and not self._process.reads_lines

    async def _wait(self, at_most_s: float) -> bool:
        """True if output came (or the end)."""
        left_s = self._began_s + self._pace.limit_s - self._clock.monotonic()
        return await wait_for(self._clock, self._process.output, min(at_most_s, max(left_s, 0)))

    async def _ended_within(self, seconds: float) -> None:
        await wait_for(self._clock, self._process.ended, seconds)

    def _tail(self) -> str:
        return "\n".join([*self._kept, *self.last.live])[-KEPT_CHARS:]


def is_key(text: str) -> bool:
    """Whether a message is one key rather than text."""
    return text.strip() in KEYS


def keys(text: str) -> bytes:
    """The bytes for a person's message: its lines, each with Enter, or the one key it names (``^D``, ``↑``)."""
    named = KEYS.get(text.strip())
    if named is not None:
        return named
    lines = text.replace("\r\n", "\n").split("\n")
    return "".join(f"{line}\r" for line in lines).encode(errors="replace")
