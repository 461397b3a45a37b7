"""Runs a run's checks in its agent's sandbox, one at a time, and edits the card with the results.

Checks need a tree that nobody is changing: when another run begins there they are postponed, and no run ever waits
for them. If a worker dies while checks run, the next one finds the row that was started, reports it and does not run
them again.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.schema import Check, ChecksSection
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import MessageRef
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import settled_within
from codebutler.text.markup import plain
from codebutler.text.wording import one_line, span
from codebutler_worker.agents.backend import AgentBackend, AgentEvent, Finished, TurnRequest
from codebutler_worker.agents.session_logs import session_of
from codebutler_worker.changes.card import (
    INTERRUPTED,
    NOT_RUN,
    REPAIRING,
    CheckResult,
    repair_prompt,
    still_failing,
    verdict_of,
)
from codebutler_worker.changes.pending import ALL, tell, turn_of
from codebutler_worker.runtime.budget import account_of, used_today, used_up
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import CHECKS, LIVE, audit_of, queue_after
from codebutler_worker.sandbox.destinations import read_regular, status_beneath
from codebutler_worker.store.rows import DeferredRow, TurnRow, message_id
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of

STOP_S = 10.0
"""A check that reaches its limit is killed if it has not exited within this time."""
_REPAIR = "repair-"


async def answer_checks(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Run them, and show the results on the card."""
    turn_id, config = turn_of(command.id), runtime.settings.config
    if (turn := await runtime.commit(lambda uow: uow.turns.get(turn_id))) is None:
        return CommandReply(ok=False)
    if command.attempts:
        return _told(INTERRUPTED)
    found = checks_of(config.checks, Path(runtime.settings.path))
    asked = command.argument == ALL
    due = [check for check in found if check.when == "always" or (asked and check.when == "ask")]
    reached("checks.before")
    try:
        results = await run_checks(runtime, turn, due)
    except CodeButlerError as error:
        return _told(NOT_RUN.format(why=plain(one_line(str(error), 300))))
    reached("checks.after")
    mends = not asked and not all(one.ok for one in results)
    return CommandReply(also=partial(_judged, runtime=runtime, turn=turn, results=results, mends=mends))


def _told(verdict: str) -> CommandReply:
    return CommandReply(also=partial(tell, verdict=verdict))


async def run_checks(runtime: Runtime, turn: TurnRow, checks: Sequence[Check]) -> list[CheckResult]:
    """Run each one in the run's working directory."""
    workdir = await runtime.agents.workdir(turn.conversation)
    backend = await runtime.agents.get(CHECKS)
    found = []
    for check in checks:
        request = TurnRequest(
            turn_id=uuid.uuid4().hex, conversation=turn.conversation, prompt=check.command, workdir=workdir
        )
        found.append(await _run(runtime, turn, backend, check, request))
    return found


async def _run(
    runtime: Runtime, turn: TurnRow, backend: AgentBackend, check: Check, request: TurnRequest
) -> CheckResult:
    """Write an audit line before it starts and another when it has ended."""
    audited, began_s = replace(turn, agent=CHECKS), runtime.clock.monotonic()
    runtime.send(audit_of(audited, check.command, "started"))
    running = asyncio.create_task(_finished(backend.start(request)), name=f"check of {turn.id}")
    in_time = await _ended(runtime, running, backend, request.turn_id, check.time_limit)
    seconds = runtime.clock.monotonic() - began_s
    ended = running.result() if not running.cancelled() else Finished(ok=False, text="", reason="timeout")
    ok = in_time and ended.ok
    decision = "done" if ok else "failed"
    runtime.send(
        audit_of(audited, check.command, decision, exit_code=ended.exit_code, duration_s=round(seconds, 3))
    )
    runtime.log("INF", f"check {check.name}: {decision} · {span(seconds)}")
    why = "" if in_time else "was stopped at its time limit"
    if in_time and not ok and ended.exit_code is None:
        why = "could not be run"
    tail = runtime.redactor.redact(ended.text)
    return CheckResult(
        check.name, ok, seconds, ended.exit_code, why, tail, "" if ok else session_of(request.turn_id)
    )


async def _ended(
    runtime: Runtime, running: asyncio.Task[Finished], backend: AgentBackend, run_id: str, limit_s: float
) -> bool:
    """Wait for it, or stop it after ``limit_s``; returns whether it ended in time."""
    try:
        if await settled_within(runtime.clock, running, limit_s):
            return True
        await backend.stop(run_id)
        await settled_within(runtime.clock, running, STOP_S)
        return False
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _finished(stream: AsyncIterator[AgentEvent]) -> Finished:
    ended = Finished(ok=False, text="", reason="failed")
    try:
        async for event in stream:
            if isinstance(event, Finished):
                ended = event
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
    return ended


def _judged(
    uow: UnitOfWork,
    command: DeferredRow,
    *,
    runtime: Runtime,
    turn: TurnRow,
    results: Sequence[CheckResult],
    mends: bool,
) -> None:
    """Keep and show the results."""
    uow.turns.update(turn.id, checks="passed" if all(one.ok for one in results) else "failed")
    if mends:
        _failed(uow, command, runtime, turn, results)
    else:
        tell(uow, command, verdict_of(results))


def _failed(
    uow: UnitOfWork, command: DeferredRow, runtime: Runtime, turn: TurnRow, results: Sequence[CheckResult]
) -> None:
    """Automatic checks failed: say so, and let the agent fix it once; after that, ask a person."""
    verdict = verdict_of(results)
    if is_repair(uow, turn):
        tell(uow, command, verdict)
        uow.post(place_of(turn), still_failing(results, turn.id), mention=turn.user_id)
    elif runtime.settings.config.checks.repair and may_repair(uow, runtime, turn):
        tell(uow, command, f"{verdict}\n{REPAIRING}", offer=False)
        queue_after(uow, turn, turn.agent, repair_key(turn.id), repair_prompt(results), turn.user_id)
    else:
        tell(uow, command, verdict)


def repair_key(turn_id: str) -> MessageRef:
    """The key of the message that asks an agent to fix what a run broke: at most one is sent automatically."""
    return MessageRef(f"{_REPAIR}{turn_id}")


def is_repair(uow: UnitOfWork, turn: TurnRow) -> bool:
    """Whether the run was requested because checks had failed."""
    return any(message.key.startswith(_REPAIR) for message in uow.messages.find(turn_id=turn.id))


def may_repair(uow: UnitOfWork, runtime: Runtime, turn: TurnRow) -> bool:
    """Whether nobody has written since, no budget is used up, and no repair was tried before."""
    if uow.messages.get(message_id(turn.channel_id, repair_key(turn.id))) is not None:
        return False
    waiting = uow.turns.find(state=("queued", "parked", *LIVE))
    if any(each.conversation == turn.conversation for each in waiting):
        return False
    used = used_today(uow, runtime.settings.config, account_of(turn), runtime.elsewhere)
    return used_up(used) is None


# A repository's checks: the configured ones, otherwise those its files suggest. Reads files, runs nothing.

LIMIT_BYTES = 2**20
_TARGET = re.compile(r"^(check|test)\s*:(?![:=])", re.MULTILINE)
NPM_PLACEHOLDER = "no test specified"


def checks_of(section: ChecksSection, repo: Path) -> tuple[Check, ...]:
    """The checks; none if nothing configures or suggests any. Suggested checks run only on request."""
    command = section.command.strip()
    named = (*((Check(name=command, command=command),) if command else ()), *section.commands)
    if named:
        return named
    found = next((found for look in _LOOKS if (found := look(repo))), None)
    return (Check(name=found, command=found, when="ask"),) if found else ()


def script_of(checks: Sequence[Check]) -> str:
    """All of them as one shell command, which fails if any of them does. Pure."""
    if len(checks) == 1:
        return checks[0].command
    lines = ["failed="]
    for check in checks:
        lines += [f"echo {shlex.quote(f'== {check.name}')}", "(", check.command, ") || failed=1"]
    return "\n".join([*lines, '[ -z "$failed" ]'])


def _make(repo: Path) -> str | None:
    text = next((text for name in ("GNUmakefile", "makefile", "Makefile") if (text := _read(repo, name))), "")
    targets = set(_TARGET.findall(text))
    return next((f"make {target}" for target in ("check", "test") if target in targets), None)


def _npm(repo: Path) -> str | None:
    try:
        scripts = json.loads(_read(repo, "package.json") or "{}").get("scripts", {})
        test = scripts.get("test", "")
    except (ValueError, AttributeError, RecursionError):
        return None
    return "npm test" if isinstance(test, str) and test and NPM_PLACEHOLDER not in test else None


def _pytest(repo: Path) -> str | None:
    configured = "[tool.pytest" in _read(repo, "pyproject.toml") or "[tool:pytest]" in _read(
        repo, "setup.cfg"
    )
    if not (configured or _is_there(repo, "pytest.ini") or _is_there(repo, "tests/conftest.py")):
        return None
    own = ".venv/bin/python"
    return f"{own if _is_there(repo, '.venv/bin') else 'python3'} -m pytest"


def _by_file(repo: Path) -> str | None:
    known = {"Cargo.toml": "cargo test", "go.mod": "go test ./..."}
    return next((command for name, command in known.items() if _is_there(repo, name)), None)


_LOOKS: tuple[Callable[[Path], str | None], ...] = (_make, _npm, _pytest, _by_file)


def _read(repo: Path, name: str) -> str:
    """The file's text; "" if it is missing, or not a regular file of a reasonable size."""
    try:
        return read_regular(repo, name, LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _is_there(repo: Path, name: str) -> bool:
    try:
        return status_beneath(repo, name) is not None
    except OSError:
        return False
