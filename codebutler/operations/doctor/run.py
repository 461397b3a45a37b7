"""All checks in order: first what everything else needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

from codebutler.config.channels import served_chats
from codebutler.config.paths import Home
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ConfigError
from codebutler.intake.repos import AGENT_VARIABLES, RepoTable, with_env_file, without_tokens
from codebutler.operations.doctor.machine import check_home, check_repos, check_running, programs_path
from codebutler.operations.doctor.slack import check_slack
from codebutler.operations.doctor.telegram import check_telegram
from codebutler.operations.doctor.worker import check_worker, groups
from codebutler.platform.lookup import TERMINAL_PATH
from codebutler.protocol.messages import Finding, fail, ok

# What of a repository is its own; the rest is the same for all with the same configuration.
OWN = frozenset({"store"})


async def examine(home: Home, env: Mapping[str, str], clock: Clock, *, live: bool) -> AsyncIterator[Finding]:
    """Every finding as it is found. ``live``: have each installed agent answer once."""
    if not home.root.is_dir():
        yield fail("home", str(home.root), "there is none yet: run `codebutler setup`")
        return
    for finding in check_home(home):
        yield finding
    async for finding in check_running(home):
        yield finding
    try:
        config = resolve_global(home, env).config
        table = RepoTable.read(home, env)
    except ConfigError as error:
        yield fail("home", "configuration", str(error))
        return
    told = "{} can be used" if home.config.exists() else "there is no {} yet: every key has its default"
    yield ok("home", "configuration", told.format(home.config))
    async for finding in _chats(config, table, clock):
        yield finding
    for finding in check_repos(home, table):
        yield finding
    env = await _programs(home, env)
    everything = with_env_file(home, env)
    settings = [each.settings(everything) for each in table.served]
    if not settings:
        # Walls and agents are the machine's; they can be looked at before there is a repository.
        agents = {name: everything[name] for name in AGENT_VARIABLES if name in everything}
        settings = [
            RepoSettings(name="", path="", channel_id="", config=without_tokens(config), agent_env=agents)
        ]
    async for finding in _workers(settings, home, env, live=live):
        yield finding


async def _chats(config: Config, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
    served = served_chats(config)
    if "Slack" in served:
        async for finding in check_slack(config.slack, table, clock):
            yield finding
    if "Telegram" in served:
        async for finding in check_telegram(config.telegram, table):
            yield finding


async def _programs(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the PATH of the supervisor: of the one that runs, or that would run."""
    return {**env, "PATH": await programs_path(home, env), TERMINAL_PATH: env.get("PATH", "")}


async def _workers(
    settings: list[RepoSettings], home: Home, env: Mapping[str, str], *, live: bool
) -> AsyncIterator[Finding]:
    alike = groups(settings)
    for group in alike:
        async for finding in check_worker(group, home, env, live=live):
            yield finding if finding.area in OWN or len(alike) == 1 else _named(finding, group)


def _named(finding: Finding, group: tuple[RepoSettings, ...]) -> Finding:
    names = ", ".join(each.name for each in group[:3]) + (", …" if len(group) > 3 else "")
    return msgspec.structs.replace(finding, subject=f"{finding.subject} [{names}]")
