"""The trial of one agent: its turns, in an order in which later ones build on earlier ones, what each of them shows,
and the finding that sums them up.

The prompts are short, and each says exactly what to do: what is tried is the machinery around the model, not the model.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.config.programs import model_section_of
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.capabilities import (
    CAPABILITIES,
    AgentResult,
    Capability,
    Cell,
    CellState,
    CheckupLine,
    cells_of,
)
from codebutler.protocol.messages import Finding, fail, ok, warn
from codebutler_worker.agents.push_server import server
from codebutler_worker.agents.survey import SUPPORTED, Survey, dotted
from codebutler_worker.conversation.prepare import file_note
from codebutler_worker.media.files import FILES, save_file
from codebutler_worker.sandbox.destinations import read_regular
from codebutler_worker.store.rows import AttachmentRow
from codebutler_worker.tools.talking import PUSH_TOOL, is_push_request
from codebutler_worker.trials.turns import (
    COLOURS,
    OFFLINE,
    Subject,
    TrialRunner,
    TrialTurn,
    picture,
    scratch_repository,
)
from codebutler_worker.worker.bootstrap import Roster

STOP_S = 10.0
MAX_BYTES = 10_000
REMEMBER = "Remember the word {word}. Answer with the one word READY and nothing else. Use no tool."
# A prompt that the offline agent understands.
REHEARSAL = "list the files"
WRITE = "Write the word that you remember into the new file word.txt here. Then answer with that word."
RECALL = "Which word do you remember? Answer with that word and nothing else. Use no tool."
RUN = "Run exactly this command with your shell tool, in the foreground, then answer READY: {command}"
DENIED = "touch denied.txt"
LONG = "for i in $(seq 120); do sleep 1; done"
PLANNED = "Write the word PLAN into the new file planned.txt here, at once. If you may not, answer REFUSED."
PICTURE = "Look at the attached picture. Which colour is it? Answer with that one word.\n\n{note}"
MCP = f"Call the tool {PUSH_TOOL} once, with why = TEST. Then answer READY."
STEPS: Mapping[str, str] = MappingProxyType(
    {
        "remember": "answer, and report its cost",
        "write": "resume, and use a tool",
        "deny": "accept a refusal",
        "plan": "change nothing in plan mode",
        "stop": "stop",
        "kill": "be killed",
        "recall": "resume after being killed",
        "image": "see a picture",
        "mcp": "use an MCP server",
    }
)
"""The turns in the words of progress lines."""


class Trial(Struct):
    """One agent under trial: ``cells`` holds what is known so far."""

    subject: Subject
    runner: TrialRunner
    config: Config
    cells: dict[Capability, Cell] = field(default_factory=dict)
    model: str = ""
    word: str = field(
        default_factory=lambda: (
            f"{secrets.choice(('heron', 'maple', 'cobalt'))}{secrets.randbelow(900) + 100}"
        )
    )
    first: TrialTurn = field(default_factory=TrialTurn)

    async def run(self) -> AsyncIterator[str]:
        """Run the turns and yield each one's name before it; afterwards every capability has its cell."""
        for capability, why in self.subject.unsupported.items():
            state: CellState = "not tried" if why == OFFLINE else "not supported"
            self.cells[capability] = Cell(capability=capability, state=state, text=why)
        steps: Mapping[str, Callable[[], Awaitable[None]]] = {
            "remember": self._remember,
            "write": self._write,
            "deny": self._deny,
            "plan": self._plan,
            "stop": self._stop,
            "kill": self._kill,
            "recall": self._recall,
            "image": self._image,
            "mcp": self._mcp,
        }
        for name in self.subject.turns:
            if name != "remember" and not self.first.ok:
                break
            yield name
            await steps[name]()
        for capability in CAPABILITIES:
            if capability not in self.cells:
                self._set(capability, "not tried", "it gave no answer")

    def _set(self, capability: Capability, state: CellState, text: str = "", fix: str = "") -> None:
        if capability not in self.subject.unsupported:
            self.cells[capability] = Cell(capability=capability, state=state, text=text, fix=fix)

    async def _remember(self) -> None:
        offline = self.subject.kind == "rehearsal"
        self.first = turn = await self.runner.turn(REHEARSAL if offline else REMEMBER.format(word=self.word))
        self.model = turn.model
        if not turn.ok:
            self._set(
                "answer", "no", turn.text, "Do what it says, then run `codebutler doctor --live` again."
            )
            return
        self._set("answer", "yes", f"in {turn.took_s:.1f} s")
        usage = turn.finished.usage if turn.finished else None
        if usage is not None and usage.cost_usd is not None:
            self._set("cost", "yes", f"${usage.cost_usd:.4f} for the first run")
        elif usage is not None and usage.input_tokens:
            text = f"it reports tokens ({usage.input_tokens} in, {usage.output_tokens} out), but no price"
            has_prices = self.subject.kind in ("kimi", "native")
            fix = (
                "Set the price of its model in `native.prices`." if has_prices else "Budgets cannot count it."
            )
            self._set("cost", "no", text, fix)
        else:
            self._set("cost", "no", "it reports neither tokens nor cost", "Budgets cannot count it.")

    async def _write(self) -> None:
        turn = await self.runner.turn(WRITE, session=self.first)
        content = _content(self.runner.repo, "word.txt")
        if self.word in content or self.word in turn.text:
            self._set("resume", "yes", "it knew what an earlier run had said")
        else:
            fix = "Repeat what matters in each message, or use another agent."
            self._set("resume", "no", _why_forgotten(turn), fix)
        if content:
            self._set("tools", "yes", "it wrote a file")
        elif turn.tools:
            self._set(
                "tools", "no", "its tool wrote nothing", "See `codebutler logs`; is the sandbox set up?"
            )
        else:
            self._set(
                "tools", "no", _failure_or(turn, "it called no tool"), "Choose a model that can call tools."
            )

    async def _deny(self) -> None:
        turn = await self.runner.turn(RUN.format(command=DENIED), mode="ask", allow=False)
        if os.path.lexists(self.runner.repo / "denied.txt"):
            text = (
                "it ran a command although nobody allowed it"
                if turn.asked_permission
                else "it ran a command without asking"
            )
            self._set("deny", "no", text, "Only the sandbox limits it: do not rely on permission mode `ask`.")
        elif turn.asked_permission:
            self._set("deny", "yes", "it asked, was refused, and ran nothing")
        else:
            self._set("deny", "not tried", _failure_or(turn, "it did not try to run the command"))

    async def _plan(self) -> None:
        turn = await self.runner.turn(PLANNED, mode="plan", allow=False)
        if os.path.lexists(self.runner.repo / "planned.txt"):
            self._set("plan", "no", "it wrote a file in plan mode", "Do not rely on `!mode plan` with it.")
        elif turn.ok:
            self._set("plan", "yes", "it changed nothing in plan mode")
        else:
            self._set("plan", "no", turn.text, "Use another mode with it.")

    async def _stop(self) -> None:
        turn = await self.runner.turn(RUN.format(command=LONG), interruption="stop")
        if turn.ended_s is None:
            self._set("stop", "not tried", _failure_or(turn, "it was not busy, so there was nothing to stop"))
        elif turn.finished is not None and turn.finished.reason == "stopped" and turn.ended_s <= STOP_S:
            self._set("stop", "yes", f"in {turn.ended_s:.1f} s")
        else:
            text = f"it took {turn.ended_s:.1f} s and ended with: {turn.text}"
            self._set("stop", "no", text, "Use `!kill` to stop it.")

    async def _kill(self) -> None:
        turn = await self.runner.turn(RUN.format(command=LONG), session=self.first, interruption="kill")
        if turn.ended_s is None:
            self._set(
                "resume-after-kill",
                "not tried",
                _failure_or(turn, "it was not busy, so there was nothing to kill"),
            )

    async def _recall(self) -> None:
        if "resume-after-kill" in self.cells:
            return
        turn = await self.runner.turn(RECALL, session=self.first)
        if self.word in turn.text:
            self._set("resume-after-kill", "yes", "it continued in the same session")
            return
        self._set("resume-after-kill", "no", _why_forgotten(turn), "After a crash, repeat what matters.")

    async def _image(self) -> None:
        colour = secrets.choice(tuple(COLOURS))
        content = picture(colour)
        try:
            path = save_file(self.runner.repo, FILES, "1-picture.png", content)
        except (OSError, CodeButlerError) as error:
            self._set("image", "not tried", f"the picture could not be stored: {error}")
            return
        row = AttachmentRow(
            message_id="m",
            file_id="1",
            mimetype="image/png",
            name="picture.png",
            size_bytes=len(content),
            state="stored",
            path=path,
        )
        turn = await self.runner.turn(PICTURE.format(note=file_note(row, str(self.runner.repo))))
        if colour in turn.text.lower():
            self._set("image", "yes", "it named the colour of a picture")
        else:
            text = _failure_or(turn, f"it did not see the colour of a picture: {turn.text[:80]}")
            self._set("image", "no", text, "Choose a model that accepts pictures, or describe them.")

    async def _mcp(self) -> None:
        if not server():
            self._set("mcp", "not tried", "our test server needs Perl", "Install Perl.")
            return
        turn = await self.runner.turn(MCP)
        calls = [used for used in turn.tools if is_push_request(used.name)]
        if any(used.id in turn.succeeded for used in calls):
            self._set("mcp", "yes", f"it called {calls[0].name}")
        else:
            text = "its call failed" if calls else _failure_or(turn, "it did not find our server's tool")
            self._set(
                "mcp", "no", text, "It asks for a push in words instead; servers of your own may fail too."
            )


def _failure_or(turn: TrialTurn, otherwise: str) -> str:
    """Why a turn showed nothing: it failed itself, or else ``otherwise``."""
    return otherwise if turn.ok else turn.text or otherwise


def _why_forgotten(turn: TrialTurn) -> str:
    if turn.fresh:
        return "its session was lost"
    return _failure_or(turn, "it did not know what an earlier run had said")


def _content(repo: Path, name: str) -> str:
    """The content of a file that an agent wrote, if it is a regular file."""
    try:
        return read_regular(repo, name, MAX_BYTES, head=True).decode(errors="replace")
    except OSError:
        return ""


def announcement(subjects: Sequence[Subject]) -> str:
    """Announces the turns that are about to run. Pure."""
    if not subjects:
        return "No agent is ready, so nothing was tried."
    numbers = ", ".join(f"{subject.name} {len(subject.turns)}" for subject in subjects)
    total = sum(len(subject.turns) for subject in subjects)
    return f"About to start {total} short runs ({numbers}); each is a prompt of a line or two, at your model's price."


async def try_agent(
    survey: Survey, subject: Subject, group: Sequence[RepoSettings], home: Path, state: Path
) -> AsyncIterator[CheckupLine]:
    """Its steps, then its row and its finding. ``group``: the repositories with its settings; ``state``: the
    supervisor's directory, which no agent may see."""
    async with scratch_repository(group[0]) as repo:
        settings = replace(group[0], path=str(repo), name="sample")
        roster = Roster(settings, home, state, SystemClock())
        runner = TrialRunner(
            roster,
            subject.name,
            repo,
            interrupts_at_start=subject.kind == "headless",
            is_ours=subject.kind == "native",
        )
        trial = Trial(subject, runner, settings.config)
        try:
            steps = subject.turns
            async for name in trial.run():
                number = f"run {steps.index(name) + 1} of {len(steps)}"
                yield CheckupLine(step=f"{subject.name}: {number}: {STEPS[name]}")
        finally:
            await roster.close()
    row = _row(survey, trial, tuple(each.name for each in group))
    yield CheckupLine(row=row)
    yield CheckupLine(finding=live_finding(row))


def _row(survey: Survey, trial: Trial, repos: tuple[str, ...]) -> AgentResult:
    supported = SUPPORTED.get(trial.subject.name) if trial.subject.kind in SUPPORTED else None
    return AgentResult(
        agent=trial.subject.name,
        repos=repos,
        version=survey.version,
        floor=dotted(supported.floor) if supported else "",
        tested=dotted(supported.tested) if supported else "",
        model=_model(trial.config, trial.subject.name) or trial.model,
        turns=trial.runner.turns,
        cost_usd=round(trial.runner.cost_usd, 6),
        cells=tuple(trial.cells[name] for name in CAPABILITIES),
    )


def _model(config: Config, agent: str) -> str:
    section = model_section_of(config, agent)
    return section.model if section is not None else ""


def live_finding(row: AgentResult) -> Finding:
    """The row in one line: whether it answers, and which expected capabilities it lacks. Pure."""
    cells = cells_of(row)
    answer = cells["answer"]
    if answer.state != "yes":
        return fail("live", row.agent, answer.text)
    cost = f", ${row.cost_usd:.2f} in all" if row.cost_usd else ""
    text = f"answered {answer.text}; {_count_working(row.cells)}{cost}"
    missing = [f"{cell.capability}: {cell.text}" for cell in row.cells if cell.state == "no"]
    if missing:
        return warn("live", row.agent, f"{text}; missing: {'; '.join(missing)}")
    return ok("live", row.agent, text)


def _count_working(cells: Sequence[Cell]) -> str:
    tried = [cell for cell in cells if cell.state in ("yes", "no")]
    return f"{sum(cell.state == 'yes' for cell in tried)} of {len(tried)} capabilities work"
