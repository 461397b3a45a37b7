"""The composition root of a host: the workers of this machine, for a gateway on another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from codebutler.cluster.bus import Bus
from codebutler.cluster.host import HostLink, LocalRepos
from codebutler.cluster.membership import read_membership
from codebutler.cluster.services import HeldLease, HostServices
from codebutler.config.channels import with_gateway_settings
from codebutler.config.paths import Home
from codebutler.config.registry import JobsProvenance, Registry, RepoEntry
from codebutler.config.resolve import resolve_global, resolve_repo, secrets_of
from codebutler.config.schema import RepoSettings
from codebutler.config.section import limits_any
from codebutler.domain.errors import ConfigError
from codebutler.intake.repos import RepoTable, Served
from codebutler.observe.audit import AuditLog, maintain
from codebutler.observe.logs import Logs
from codebutler.parent.bootstrap import begun
from codebutler.parent.host_reports import HostedHere, HostJobs, HostRuns, HostUse
from codebutler.parent.local import LocalWorkers, Record
from codebutler.parent.spending import Spending
from codebutler.platform.signals import Stopping
from codebutler.platform.tasks import beside, first_of
from codebutler.protocol.messages import TotalUse
from codebutler.supervisor.supervisor import RepoRow
from codebutler.supervisor.workers import Workers
from codebutler.text.redact import Redactor

GRACE_S = 30.0


async def host(home: Home, env: Mapping[str, str], stopping: Stopping | None = None) -> None:
    """Run the agents of the repositories that the gateway gives this host until ``stopping``, SIGTERM or SIGINT.

    Raises ConfigError, LockHeldError, and LeaseLostError if another process is this host.
    """
    home.ensure()
    membership = read_membership(home, gateway=False)
    stopping = stopping or Stopping()
    async with begun(home, env, stopping) as beginning, AsyncExitStack() as stack:
        source = LocalWorkers(beginning)
        source.start()
        config, clock = resolve_global(home, env).config, beginning.clock
        redactor = Redactor(secrets_of(config) | {membership.seed, membership.credential})
        level, days = config.logs.level, config.logs.retention_days
        logs = stack.enter_context(Logs(home.log_file, level, redactor.redact, retention_days=days))
        audit = stack.enter_context(AuditLog(home.audit, clock, redactor.redact, retention_days=days))
        await stack.enter_async_context(beside(maintain(audit, clock), name="audit-log"))
        bus = await stack.enter_async_context(Bus.connected(membership, clock))
        standing = HeldLease(membership.name, uuid4().hex)

        services = HostServices(bus, standing, logs.record, audit.append)
        stack.push_async_callback(services.close)
        workers = await stack.enter_async_context(source.open(services, logs.record))
        workers.start()
        repositories = Repositories(home, beginning.env, membership.name, redactor)
        link = HostLink(bus, standing, services, workers, repositories.local, clock)
        spending = Spending(repositories.table, clock, logs.record)
        services.used, services.total_here = spending.reported, partial(_total, spending)
        spending.changed.add(workers.tell_total)
        use = HostUse(repositories.hosted, spending, services, logs.record)
        await stack.enter_async_context(beside(spending.run(), name="spending"))
        await stack.enter_async_context(beside(use.run(), name="use"))
        runs = HostRuns(repositories.hosted, services, clock, logs.record)
        await stack.enter_async_context(beside(runs.run(), name="runs"))
        jobs = HostJobs(repositories.hosted, services, JobsProvenance(Registry(home)), clock, logs.record)
        await stack.enter_async_context(beside(jobs.run(), name="jobs"))
        logs.record("", "INF", f"the host {membership.name} is connected to NATS")
        await _work(bus, link, workers, stopping, logs.record)


def _total(spending: Spending, repo: RepoSettings) -> TotalUse | None:
    return spending.total(repo) if limits_any(repo.config.budget.total) else None


async def _work(bus: Bus, link: HostLink, workers: Workers, stopping: Stopping, record: Record) -> None:
    """Work until ``stopping``; then running agents may finish, and their answers are still sent. Raises LeaseLostError,
    and ConfigError if this host was removed."""
    linked = asyncio.create_task(first_of(link.run(), bus.wait_refused()), name="link")
    asked = asyncio.create_task(stopping.asked.wait(), name="stop")
    try:
        await asyncio.wait({linked, asked}, return_when=asyncio.FIRST_COMPLETED)
        if linked.done():
            linked.result()
        record("", "INF", f"stopping: running work has {GRACE_S:g} s to finish, a second signal ends it now")
        await first_of(workers.shutdown(GRACE_S), stopping.insisted.wait())
        record("", "INF", "stopped")
    finally:
        asked.cancel()
        linked.cancel()
        await asyncio.gather(asked, linked, return_exceptions=True)
        await link.announce_leaving()


class Repositories:
    """The repositories registered on this machine, combined with the gateway's settings for them."""

    def __init__(self, home: Home, env: Mapping[str, str], host: str, redactor: Redactor) -> None:
        self._home = home
        self._env = env
        self._host = host
        self._redactor = redactor
        self._hosted: dict[str, HostedHere] = {}
        self._table = RepoTable(())

    def hosted(self) -> Mapping[str, HostedHere]:
        """The repositories that the last ``local`` found, by name."""
        return self._hosted

    def table(self) -> RepoTable:
        """The same, as a table."""
        return self._table

    def local(self, given: Sequence[RepoSettings]) -> LocalRepos:
        """Reads the registry and each repository's configuration; one's fault does not affect the others. Blocks."""
        hosted: dict[str, HostedHere] = {}
        missing: list[RepoRow] = []
        try:
            entries = {entry.name: entry for entry in Registry(self._home).load()}
        except ConfigError as error:
            return LocalRepos({}, tuple(_unserved(each, str(error)) for each in given))
        for each in given:
            entry = entries.get(each.name)
            if entry is None:
                there = f"run `codebutler add-repo PATH --name {each.name}` there"
                missing.append(_unserved(each, f"{self._host} has no repository with that name: {there}"))
                continue
            try:
                hosted[each.name] = self._here(entry, each)
            except ConfigError as error:
                missing.append(_unserved(each, str(error)))
        self._hosted = hosted
        self._table = RepoTable(tuple(each.served for each in hosted.values()))
        here = tuple(name for name, entry in entries.items() if Path(entry.path).is_dir())
        return LocalRepos({name: each.settings for name, each in hosted.items()}, tuple(missing), here)

    def _here(self, entry: RepoEntry, given: RepoSettings) -> HostedHere:
        resolved = resolve_repo(self._home, entry, self._env)
        self._redactor.learn(secrets_of(resolved.config))
        config = with_gateway_settings(resolved.config, given.config)
        served = Served(entry, config, resolved.notes, resolved.trusted)
        settings = served.settings(self._env)
        return HostedHere(replace(settings, channel_id=given.channel_id, host=given.host), served)


def _unserved(given: RepoSettings, problem: str) -> RepoRow:
    return RepoRow(
        name=given.name,
        path="",
        channel_id=given.channel_id,
        problem=problem,
    )
