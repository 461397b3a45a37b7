"""The turns of a trial: which of them an agent cannot take by its nature, what is sent in one, what is done to it while
it runs, and what was heard.
"""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field

from codebutler.config.git_repo import sudo_user
from codebutler.config.programs import CONFIGURED, Choice, Mode, is_headless, model_section_of
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.capabilities import CAPABILITIES, Capability
from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Answer,
    Approval,
    Finished,
    Question,
    Started,
    ToolResult,
    ToolUse,
    TurnRequest,
)
from codebutler_worker.agents.headless import remembers
from codebutler_worker.sandbox.process import descendants, kill_leftovers
from codebutler_worker.store.opening import prepare_state_dir
from codebutler_worker.worker.bootstrap import Roster

TURN_S = 120.0
Interruption = Literal["", "stop", "kill"]
"""What happens to a turn once it works: nothing, the effect of `!stop`, or SIGKILL for all its processes."""
REFUSAL = "This is a test of refusals: the answer is no. Say REFUSED and end."

COLOURS: Mapping[str, bytes] = MappingProxyType(
    {"red": b"\xe0\x10\x10", "green": b"\x10\xb0\x20", "blue": b"\x10\x20\xe0", "yellow": b"\xf0\xe0\x10"}
)
PICTURE_PIXELS = 64

AgentKind = Literal["claude", "kimi", "native", "rehearsal", "acp", "headless"]
OFFLINE = "the offline agent only follows its script"
_OURS: Mapping[str, AgentKind] = MappingProxyType(
    {"claude": "claude", "kimi": "kimi", "native": "native", "rehearsal": "rehearsal"}
)
_NO_MODES = "CodeButler knows no read-only mode of it"
_PRINTS = "a program that only prints its answer"
_FORGETS = "its `args` have no {session}, so each run is given the conversation's record"
_UNSUPPORTED: Mapping[AgentKind, Mapping[Capability, str]] = MappingProxyType(
    {
        "native": {"image": "it reads text only", "mcp": "it has its own tools"},
        "rehearsal": dict.fromkeys((each for each in CAPABILITIES if each != "answer"), OFFLINE),
        "acp": {"plan": _NO_MODES},
        "headless": {
            "deny": f"{_PRINTS} cannot ask",
            "cost": f"{_PRINTS} reports no cost",
            "plan": _NO_MODES,
            "mcp": f"{_PRINTS} gets no MCP server",
        },
    }
)
TURNS: Mapping[str, frozenset[Capability]] = MappingProxyType(
    {
        "remember": frozenset(("answer", "cost")),
        "write": frozenset(("resume", "tools")),
        "deny": frozenset(("deny",)),
        "plan": frozenset(("plan",)),
        "stop": frozenset(("stop",)),
        "kill": frozenset(("resume-after-kill",)),
        "recall": frozenset(("resume-after-kill",)),
        "image": frozenset(("image",)),
        "mcp": frozenset(("mcp",)),
    }
)
"""The turns of a trial, and what each shows."""


class TrialTurn(Struct):
    """One turn. ``ended_s``: how long it took to end after the interruption. ``asked_permission``: it did so."""

    session_id: str = ""
    fresh: bool = False
    model: str = ""
    asked_permission: bool = False
    tools: list[ToolUse] = field(default_factory=list)
    succeeded: set[str] = field(default_factory=set)
    finished: Finished | None = None
    took_s: float = 0.0
    ended_s: float | None = None
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was completed."""
        return self.finished is not None and self.finished.ok

    @property
    def text(self) -> str:
        """Its answer, or why there is none."""
        if self.timed_out:
            return f"no answer within {TURN_S:g} s"
        return self.finished.text if self.finished else "its run did not finish"


class TrialRunner:
    """Runs turns of one agent in one scratch repository. ``turns`` and ``cost_usd`` add up; ``interrupts_at_start``: it
    reports no tools, so its turns are stopped or killed as soon as they have begun. ``is_ours``: it works in this
    process, so killing it means to abandon it in the middle of its turn."""

    def __init__(
        self,
        roster: Roster,
        name: str,
        repo: Path,
        *,
        interrupts_at_start: bool = False,
        is_ours: bool = False,
    ) -> None:
        self.repo = repo
        self.turns = 0
        self.cost_usd = 0.0
        self._roster = roster
        self._name = name
        self._interrupts_at_start = interrupts_at_start
        self._is_ours = is_ours

    async def turn(
        self,
        prompt: str,
        *,
        session: TrialTurn | None = None,
        mode: Mode = "",
        allow: bool = True,
        interruption: Interruption = "",
    ) -> TrialTurn:
        """Run one turn in a new session or in that of ``session``. ``allow``: the answer to its requests for
        permission. Never raises for a turn that fails."""
        self.turns += 1
        result = TrialTurn()
        request = TurnRequest(
            turn_id=f"doctor{self.turns}",
            conversation="doctor",
            prompt=prompt,
            workdir=self.repo,
            session_id=session.session_id or None if session else None,
            session_name="" if session else f"codebutler-doctor-{self.repo.parent.name}-{self.turns}",
            cost_before_usd=(session.finished.total_cost_usd or 0.0) if session and session.finished else 0.0,
        )
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(TURN_S):
                backend = await self._roster.get(self._name, Choice(mode=mode) if mode else CONFIGURED)
                await self._read_events(
                    backend, request, result, interruption, Answer(allow=allow, text="" if allow else REFUSAL)
                )
        except TimeoutError:
            result.timed_out = True
        except CodeButlerError as error:
            result.finished = Finished(ok=False, text=str(error), reason="unavailable")
        result.took_s = time.monotonic() - began_s
        if result.finished is not None:
            self.cost_usd += result.finished.usage.cost_usd or 0.0
        return result

    async def _read_events(
        self,
        backend: AgentBackend,
        request: TurnRequest,
        result: TrialTurn,
        interruption: Interruption,
        answer: Answer,
    ) -> None:
        interrupting: asyncio.Task[None] | None = None
        interrupted_s = 0.0
        stream = backend.start(request)
        try:
            # Read it to its end, which closes it.
            async for event in stream:
                _record(event, result)
                if isinstance(event, Approval | Question):
                    await backend.answer(request.turn_id, event.id, answer)
                if interruption and interrupting is None and self._is_working(event):
                    interrupted_s = time.monotonic()
                    if interruption == "kill" and self._is_ours:
                        result.ended_s = 0.0
                        break
                    interrupting = asyncio.create_task(
                        _interrupt(backend, request.turn_id, interruption), name="trial:interrupt"
                    )
        finally:
            if (close := getattr(stream, "aclose", None)) is not None:
                await close()
        if interrupting is not None:
            await interrupting
            result.ended_s = time.monotonic() - interrupted_s

    def _is_working(self, event: AgentEvent) -> bool:
        return isinstance(event, ToolUse) or (self._interrupts_at_start and isinstance(event, Started))


def _record(event: AgentEvent, result: TrialTurn) -> None:
    match event:
        case Started():
            result.session_id, result.fresh, result.model = event.session_id, event.fresh, event.model
        case ToolUse():
            result.tools.append(event)
        case ToolResult(id=id, ok=True):
            result.succeeded.add(id)
        case Approval() | Question():
            result.asked_permission = True
        case Finished():
            result.finished = event


async def _interrupt(backend: AgentBackend, turn_id: str, interruption: Interruption) -> None:
    if interruption == "stop":
        await backend.stop(turn_id)
    else:
        await kill_leftovers(await descendants(os.getpid()))


@asynccontextmanager
async def scratch_repository(template: RepoSettings) -> AsyncIterator[Path]:
    """A repository that belongs to the same user as ``template``'s, so that programs run as in that one."""
    place = "/tmp" if os.geteuid() == 0 else None  # noqa: S108 - open to walk to, where a private directory is made
    with tempfile.TemporaryDirectory(prefix="codebutler-doctor-", dir=place) as directory:
        repo = Path(directory).resolve() / "sample"
        repo.mkdir()
        # Readable for the ordinary user that root's agents run as.
        repo.parent.chmod(0o755)
        (repo / "README.md").write_text("A sample.\n", encoding="utf-8")
        prepare_state_dir(repo)
        await asyncio.to_thread(
            subprocess.run, ["git", "init", "-q", str(repo)], check=False, stdout=subprocess.DEVNULL
        )
        if os.geteuid() == 0:
            await asyncio.to_thread(chown_all, repo, owner_of(template))
        yield repo


def owner_of(settings: RepoSettings) -> int:
    """The user's number; without a repository that of the person who runs us."""
    path = Path(settings.path)
    if settings.path and path.exists():
        return path.stat().st_uid
    return os.geteuid() or sudo_user(os.environ).uid


def chown_all(repo: Path, owner: int) -> None:
    """Make everything in the repository its owner's."""
    for path in (repo, *repo.rglob("*")):
        os.chown(path, owner, owner, follow_symlinks=False)


def picture(colour: str) -> bytes:
    """A PNG (ISO/IEC 15948) of nothing but this colour. Pure."""
    row = b"\0" + COLOURS[colour] * PICTURE_PIXELS
    header = struct.pack(">IIBBBBB", PICTURE_PIXELS, PICTURE_PIXELS, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(row * PICTURE_PIXELS)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class Subject(Struct, frozen=True):
    """One agent to be tried. ``unsupported``: what it cannot do by its nature, each with the reason."""

    name: str
    kind: AgentKind
    unsupported: Mapping[Capability, str] = field(default_factory=dict)

    @property
    def turns(self) -> tuple[str, ...]:
        """The turns that show something about it."""
        return tuple(name for name, capabilities in TURNS.items() if capabilities - self.unsupported.keys())


def subject_of(config: Config, name: str) -> Subject:
    """The agent of that name as it is configured."""
    rule = next((rule for rule in config.commands if rule.prefix == name), None)
    if rule is not None and is_headless(rule):
        missing: dict[Capability, str] = (
            {} if remembers(rule) else {"resume": _FORGETS, "resume-after-kill": _FORGETS}
        )
        return Subject(name, "headless", {**_UNSUPPORTED["headless"], **missing})
    is_ours = rule is None or model_section_of(config, name) is not None
    kind = _OURS.get(name, "acp") if is_ours else "acp"
    return Subject(name, kind, _UNSUPPORTED.get(kind, {}))
