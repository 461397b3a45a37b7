"""`codebutler doctor`: all checks, in order of dependence: this machine, the chats, the workers.

A worker's checks run in the worker's own code, in a process with a worker's environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from codebutler.chat.platform import platform
from codebutler.config.channels import served_chats, without_chats, without_tokens
from codebutler.config.chats import SECTIONS, NewReposSection
from codebutler.config.paths import Home
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ConfigError, LockHeldError, NotRunningError
from codebutler.domain.refs import NO_CHANNEL
from codebutler.domain.version import VERSION
from codebutler.intake import journal_file
from codebutler.intake.repos import AGENT_VARIABLES, RepoTable, with_env_file
from codebutler.parent.checkout import CheckoutLimits, FreshCheckout
from codebutler.parent.making import root_of
from codebutler.platform.lookup import TERMINAL_PATH, find_search_path, login_shell, saved_path
from codebutler.platform.system import OperatingSystem, this_system
from codebutler.protocol.capabilities import AgentResult, CheckupLine, LiveResult, keep_result
from codebutler.protocol.control import StatusReply, StatusRequest, reply_to
from codebutler.protocol.messages import Finding, fail, ok, warn
from codebutler.supervisor.forkserver import scrubbed
from codebutler.supervisor.supervisor import SupervisorLock, is_held

# The parts specific to a repository; the rest is the same for all with the same configuration.
PER_REPO_AREAS = frozenset({"store"})
# Below the first there is hardly room for a day's work, below the second events will soon be refused.
SCARCE_BYTES = 2**30
FULL_BYTES = 100 * 2**20
# The parts of the status that report problems.
STATUS_PARTS = ("supervisor", "journal", *(each.key for each in SECTIONS))
# The parent never imports the worker.
CHECKUP = "codebutler_worker.checkup"
# A live turn tells its name before it begins, and has a limit of its own.
SILENCE_S = 180.0
MAX_LINE_BYTES = 2**20
UNTRIED_PAGE = "docs/how-to/run-on-a-mac.md"


async def examine(
    home: Home, env: Mapping[str, str], clock: Clock, *, live: bool
) -> AsyncIterator[CheckupLine]:
    """Every finding as it is found. ``live``: also try what each ready agent can do, and keep the result."""
    if not home.root.is_dir():
        yield CheckupLine(finding=fail("home", str(home.root), "does not exist yet: run `codebutler setup`"))
        return
    for finding in (*check_home(home), *check_system(this_system())):
        yield CheckupLine(finding=finding)
    async for finding in check_running(home):
        yield CheckupLine(finding=finding)
    try:
        config = resolve_global(home, env).config
        table = RepoTable.read(home, env)
    except ConfigError as error:
        yield CheckupLine(finding=fail("home", "configuration", str(error)))
        return
    text = (
        "{} is valid" if home.config.exists() else "{} does not exist yet: all settings have their defaults"
    )
    yield CheckupLine(finding=ok("home", "configuration", text.format(home.config)))
    async for finding in _check_chats(config, table, clock):
        yield CheckupLine(finding=finding)
    for finding in (*check_repos(home, table), *check_new_repos(config.new_repos, env, clock)):
        yield CheckupLine(finding=finding)
    # The supervisor's PATH: of the running one, or the one that would run.
    env = {**env, "PATH": await programs_path(home, env), TERMINAL_PATH: env.get("PATH", "")}
    everything = with_env_file(home, env)
    settings = [each.settings(everything) for each in table.served]
    if not settings:
        # Sandbox and agents belong to the machine: they can be checked before there is a repository.
        agents = {name: everything[name] for name in AGENT_VARIABLES if name in everything}
        settings = [
            RepoSettings(
                name="", path="", channel_id=NO_CHANNEL, config=without_tokens(config), agent_env=agents
            )
        ]
    rows: list[AgentResult] = []
    async for line in _check_workers(settings, home, env, live=live):
        rows += [line.row] if line.row is not None else []
        yield line
    for finding in _save_result(home, clock, rows):
        yield CheckupLine(finding=finding)


def _save_result(home: Home, clock: Clock, rows: Sequence[AgentResult]) -> Iterator[Finding]:
    if not rows:
        return
    try:
        keep_result(home, LiveResult(at=clock.now().isoformat(), codebutler=VERSION, agents=tuple(rows)))
    except CodeButlerError as error:
        yield warn("live", "result", f"not saved: {error}")


async def _check_chats(config: Config, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
    for name in served_chats(config):
        async for finding in platform(name).doctor(config, table, clock):
            yield finding


async def _check_workers(
    settings: list[RepoSettings], home: Home, env: Mapping[str, str], *, live: bool
) -> AsyncIterator[CheckupLine]:
    grouped = group_alike(settings)
    for group in grouped:
        async for line in check_worker(group, home, env, live=live):
            shared = line.finding is not None and line.finding.area not in PER_REPO_AREAS and len(grouped) > 1
            yield CheckupLine(finding=_with_names(line.finding, group)) if line.finding and shared else line


def _with_names(finding: Finding, group: tuple[RepoSettings, ...]) -> Finding:
    names = ", ".join(each.name for each in group[:3]) + (", …" if len(group) > 3 else "")
    return msgspec.structs.replace(finding, subject=f"{finding.subject} [{names}]")


async def programs_path(home: Home, env: Mapping[str, str]) -> str:
    """Where the supervisor looks for programs: the running one, or the one that would run."""
    running = is_held(home.lock) and saved_path(home.root)
    return running or await find_search_path(env, login_shell())


def check_home(home: Home) -> Iterator[Finding]:
    """The owner and mode of the home, its journal, and whether a supervisor is running."""
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o077:
        yield warn(
            "home", str(home.root), f"other users can enter it (mode {mode:o}): run `chmod 700 {home.root}`"
        )
    else:
        yield ok("home", str(home.root), "private")
    yield disk_finding(home.root, shutil.disk_usage(home.root).free)
    yield _journal(home)
    yield _supervisor(home)


def check_system(system: OperatingSystem) -> Iterator[Finding]:
    """Parts of CodeButler that have never run on this operating system."""
    if system.untried:
        parts = ", ".join(each.part for each in system.untried)
        yield warn(
            "system",
            system.name,
            f"tested on Linux only, untested on this system: {parts}. See {UNTRIED_PAGE}",
        )


async def check_running(home: Home) -> AsyncIterator[Finding]:
    """Problems that the running supervisor reports about itself, its journal and its connections."""
    try:
        reply = await reply_to(home.socket, StatusRequest(), StatusReply)
    except NotRunningError:
        return
    except CodeButlerError as error:
        yield warn("supervisor", "status", str(error))
        return
    for part in STATUS_PARTS:
        if reply is not None and (trouble := reply.status.get(part, {}).get("trouble")):
            yield warn("supervisor", part, trouble)


def check_repos(home: Home, table: RepoTable) -> Iterator[Finding]:
    """Each registered repository: its configuration, whether that is trusted, and its disk."""
    if not table.served and not table.unserved:
        yield warn("repos", "none", "no repository is registered: run `codebutler add-repo PATH`")
    for unserved in table.unserved:
        yield fail("repos", unserved.entry.name, unserved.problem)
    seen = {home.root.stat().st_dev}
    for served in table.served:
        name, path = served.entry.name, Path(served.entry.path)
        if served.trusted:
            yield ok("repos", name, f"{path}, configuration trusted")
        else:
            yield warn("repos", name, served.notes[0] if served.notes else f"see `codebutler trust {name}`")
        device = path.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield disk_finding(path, shutil.disk_usage(path).free)


def check_new_repos(section: NewReposSection, env: Mapping[str, str], clock: Clock) -> Iterator[Finding]:
    """Where `!new` creates repositories, if it is set up."""
    if not section.allow:
        return
    limits = CheckoutLimits(seconds=section.timeout_minutes * 60, max_bytes=section.max_mb * 10**6)
    try:
        root = root_of(section.root)
        FreshCheckout(root, env, limits, clock).refuse_unfit()
    except (CodeButlerError, OSError) as error:
        yield fail("repos", "newRepos", str(error))
    else:
        yield ok("repos", "newRepos", f"`!new` creates repositories in {root}")


def disk_finding(path: Path, free_bytes: int) -> Finding:
    """Is there room at ``path``?"""
    text = f"{free_bytes / 2**30:.1f} GB free"
    if free_bytes < FULL_BYTES:
        return fail("disk", str(path), f"{text}: free some space; a full disk refuses messages")
    if free_bytes < SCARCE_BYTES:
        return warn("disk", str(path), f"{text}: free some space")
    return ok("disk", str(path), text)


def _journal(home: Home) -> Finding:
    try:
        revision = journal_file.revision_of(home.journal)
    except CodeButlerError as error:
        return fail("store", "journal", str(error))
    if not revision:
        return ok("store", "journal", "none yet: created at the first start")
    note = "" if revision == journal_file.HEAD else ", migrated at the next start"
    return ok("store", "journal", f"revision {revision}{note}")


def _supervisor(home: Home) -> Finding:
    try:
        with SupervisorLock(home.lock):
            pass
    except LockHeldError as error:
        return ok("supervisor", "process", f"running (pid {error.holder_pid}): see `codebutler status`")
    except OSError as error:
        return fail("supervisor", "process", f"{home.lock} cannot be opened: {error.strerror}")
    return warn(
        "supervisor",
        "process",
        "not running: `codebutler supervise`, or `codebutler install` to run it as a service",
    )


def group_alike(settings: Sequence[RepoSettings]) -> list[tuple[RepoSettings, ...]]:
    """Groups repositories whose agents would find the same: only the first of each is checked for sandbox and
    agents."""
    found: dict[bytes, list[RepoSettings]] = {}
    for each in settings:
        config = without_chats(each.config)
        key = msgspec.json.encode((config, each.agent_env))
        found.setdefault(key, []).append(each)
    return [tuple(group) for group in found.values()]


async def check_worker(
    group: Sequence[RepoSettings], home: Home, env: Mapping[str, str], *, live: bool
) -> AsyncIterator[CheckupLine]:
    """The findings about one group of repositories, as they come."""
    names = ", ".join(each.name for each in group)
    checkup = {"group": msgspec.to_builtins(tuple(group)), "state": str(home.root), "live": live}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", "-m", CHECKUP),
        env=scrubbed(dict(env)),
        cwd=home.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        limit=MAX_LINE_BYTES,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read(), name="checkup-stderr")
    try:
        process.stdin.write(json.dumps(checkup).encode())
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        process.stdin.close()
        while line := await asyncio.wait_for(process.stdout.readline(), SILENCE_S):
            yield msgspec.json.decode(line, type=CheckupLine)
        if await process.wait():
            last = (await errors).decode(errors="replace").strip().splitlines()[-1:]
            yield CheckupLine(finding=fail("worker", names, f"the check failed: {' '.join(last)[:300]}"))
    except TimeoutError:
        text = f"the check has printed nothing for {SILENCE_S:g} s"
        yield CheckupLine(finding=fail("worker", names, text))
    except msgspec.DecodeError as error:
        text = f"the check printed something unexpected: {error}"
        yield CheckupLine(finding=fail("worker", names, text))
    finally:
        errors.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
