"""A worker's checks of its repository, without a worker: sandbox, limits, agents, store.

A program of its own, ``python -I -m codebutler_worker.checkup``: a Checkup as JSON comes in on stdin,
findings go out as JSON lines. It runs with a worker's scrubbed environment, and knows no chat.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from codebutler.config.schema import RepoSettings, SandboxSection
from codebutler.domain.errors import CodeButlerError, SandboxUnavailableError
from codebutler.protocol.capabilities import CheckupLine
from codebutler.protocol.messages import Finding, fail, ok, warn
from codebutler_worker.agents.rollcall import survey
from codebutler_worker.agents.survey import Survey
from codebutler_worker.egress.policy import for_agents, summary, try_network_access
from codebutler_worker.memory.learning import memory_finding
from codebutler_worker.runtime.turns import agent_name
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.limits import Limiter, configured
from codebutler_worker.sandbox.person import home_of_agents, served_findings
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.sandbox.seatbelt import UNTESTED
from codebutler_worker.sandbox.select import select_sandbox
from codebutler_worker.store.opening import STATE_DIR, migrate_store
from codebutler_worker.trials.matrix import announcement, try_agent
from codebutler_worker.trials.turns import subject_of

TURN_AGENTS = ("claude", "rehearsal", "kimi", "agent")


class Checkup(Struct, frozen=True, kw_only=True):
    """What to check: repositories with the same configuration except for the channel, so that one stands for
    all but their stores. ``state``: the supervisor's directory, which no agent may see. ``live``: try what each
    installed agent can do, by short turns that may cost a little."""

    group: Annotated[tuple[RepoSettings, ...], Meta(min_length=1)]
    state: str
    live: bool = False


async def look(checkup: Checkup, home: Path) -> AsyncIterator[CheckupLine]:
    """Every finding and, if that was asked for, every agent's row, as it is found."""
    home_of_programs = home_of_agents(Path(checkup.group[0].path), home)
    surveyed = await survey(checkup.group[0], home_of_programs)
    async for finding in _findings(checkup, home, surveyed):
        yield CheckupLine(finding=finding)
    if checkup.live:
        async for line in _live(surveyed, checkup, home_of_programs):
            yield line


async def _findings(checkup: Checkup, home: Path, surveyed: Sequence[Survey]) -> AsyncIterator[Finding]:
    settings = checkup.group[0]
    for each in filter(lambda one: one.path, checkup.group):
        yield await asyncio.to_thread(_store, each)
    async for finding in _sandbox_findings(settings, checkup, home):
        yield finding
    yield memory_finding(settings.config)
    for found in surveyed:
        yield agent_finding(found, settings.config.agent.default, agent_name(settings.config, found.prefix))


def agent_finding(found: Survey, default: str, name: str = "") -> Finding:
    """A missing agent is a fault only if it is the default. ``name``: the agent's, if that differs from its
    prefix."""
    told = " ".join(part for part in (found.version, found.note) if part) or "ready"
    is_default = (name or found.prefix) == default
    subject = f"{found.prefix} (default)" if is_default else found.prefix
    if found.ready:
        return warn("agents", subject, told) if "newer than" in found.note else ok("agents", subject, told)
    if is_default:
        return fail("agents", subject, told)
    return ok("agents", subject, f"not in use: {told}")


def _store(settings: RepoSettings) -> Finding:
    path = Path(settings.path) / STATE_DIR / "store.db"
    try:
        if not path.exists():
            return ok("store", settings.name, "none yet: created at the first start")
        report = migrate_store(path, check=True)
    except CodeButlerError as error:
        return fail("store", settings.name, str(error))
    if report.needed:
        return ok("store", settings.name, f"revision {report.from_revision}, migrated at the next start")
    return ok(
        "store", settings.name, f"revision {report.to_revision}, {report.rows.get('messages', 0)} messages"
    )


async def _sandbox_findings(settings: RepoSettings, checkup: Checkup, home: Path) -> AsyncIterator[Finding]:
    section, state = settings.config.sandbox, Path(checkup.state)
    try:
        sandbox = await select_sandbox(section.mode, trusted=True, hidden=(state,), section=section)
    except SandboxUnavailableError as error:
        yield fail("sandbox", section.mode, str(error))
        return
    if sandbox.name == "none":
        yield warn(
            "sandbox", "none", "agents run without a sandbox: run `codebutler config set sandbox.mode auto`"
        )
    else:
        yield sandbox_finding(sandbox.name)
        for found in await asyncio.to_thread(_checkouts, checkup.group):
            yield found
    if section.readable:
        yield _readable(section)
    for found in served_findings(sandbox.name, checkup.group, home):
        yield found
    if sandbox.own_limits:
        await sandbox.close()
        yield ok("sandbox", "limits", sandbox.own_limits)
    else:
        yield _limits(section, sandboxed=sandbox.name != "none")
    if isinstance(sandbox, BwrapSandbox):
        yield _filter(sandbox)
    yield await _network(sandbox, section)


def _checkouts(group: Sequence[RepoSettings]) -> list[Finding]:
    """Repositories that cannot be sandboxed, and those where git's configuration points into the work tree."""
    found = []
    for each in group:
        root = Path(each.path)
        if not each.path or not root.is_dir():
            continue
        try:
            checkout = inspect_checkout(root)
        except SandboxUnavailableError as error:
            found.append(fail("sandbox", each.name, str(error)))
            continue
        if checkout.pointed:
            names = ", ".join(
                str(path.relative_to(root)) for path in checkout.pointed if path.is_relative_to(root)
            )
            told = f"git's configuration runs or reads {names or 'files in .git'}: read-only for agents; "
            found.append(
                ok("sandbox", each.name, f"{told}agents can change the files it calls in the working tree")
            )
        for path in checkout.sockets:
            told = f"{path} is a socket of one of your programs: agents cannot reach it"
            found.append(ok("sandbox", each.name, told))
    return found


def _readable(section: SandboxSection) -> Finding:
    missing = [name for name in section.readable if not Path(name).expanduser().exists()]
    if missing:
        return warn("sandbox", "readable", f"not there: {', '.join(missing)} (sandbox.readable)")
    return ok("sandbox", "readable", f"agents and commands also read {', '.join(section.readable)}")


def sandbox_finding(name: str) -> Finding:
    """How strong a sandbox is that has passed its self-test."""
    if name == "seatbelt":
        return warn("sandbox", name, f"self-test passed, but {UNTESTED}")
    return ok("sandbox", name, "self-test passed: programs inside see and write only their own files")


def _limits(section: SandboxSection, *, sandboxed: bool) -> Finding:
    limiter = Limiter.detect(configured(section))
    told = limiter.summary(sandboxed=sandboxed)
    held = not limiter.limits.any or "not enforceable" not in told
    return (ok if held else warn)("sandbox", "limits", told)


async def _network(sandbox: Sandbox, section: SandboxSection) -> Finding:
    try:
        told = summary(section, sandbox.name)
        network_policy = for_agents(section, sandbox.name, {})
        if network_policy.kind == "hosts" and not sandbox.own_limits:
            await try_network_access(sandbox, network_policy)
    except SandboxUnavailableError as error:
        return fail("sandbox", "network", str(error))
    return ok("sandbox", "network", told)


def _filter(sandbox: BwrapSandbox) -> Finding:
    if sandbox.filter.missing:
        told = f"not filtered: there is no list for {sandbox.filter.machine} yet"
        return warn("sandbox", "system calls", told)
    return ok("sandbox", "system calls", "filtered: those that no agent needs are refused")


async def _live(surveyed: Sequence[Survey], checkup: Checkup, home: Path) -> AsyncIterator[CheckupLine]:
    """A row for each agent that is ready, and before them the number of turns that they take."""
    settings = checkup.group[0]
    added = {rule.prefix for rule in settings.config.commands if rule.mode in ("acp", "headless")}
    tried = [
        (found, subject_of(settings.config, agent_name(settings.config, found.prefix)))
        for found in surveyed
        if found.ready and found.prefix in (*TURN_AGENTS, *added)
    ]
    yield CheckupLine(step=announcement(tuple(subject for _, subject in tried)))
    for found, subject in tried:
        async for line in try_agent(found, subject, checkup.group, home, Path(checkup.state)):
            yield line


async def main() -> None:
    """Read what to check, and print each finding at once."""
    checkup = msgspec.json.decode(sys.stdin.buffer.read(), type=Checkup)
    async for line in look(checkup, Path.home()):
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())
