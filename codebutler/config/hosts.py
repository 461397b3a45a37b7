"""A repository's configuration in a cluster: which part is the gateway's, and which its host's. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from codebutler.config.chats import SECTIONS
from codebutler.config.registry import host_in
from codebutler.config.schema import Config, RepoSettings
from codebutler.config.section import BudgetSection, limits_any


def assigned(repo: RepoSettings) -> RepoSettings:
    """What a host is told of its repository: who may speak, where, who decides, and the budget of all repositories
    together. The gateway's keys stay there."""
    chats = {each.key: getattr(repo.config, each.key).alone for each in SECTIONS}
    told = replace(
        Config(),
        **chats,
        authorization=repo.config.authorization,
        approvals=repo.config.approvals,
        budget=BudgetSection(total=repo.config.budget.total),
    )
    return RepoSettings(
        name=repo.name, path=repo.path, channel_id=repo.channel_id, config=told, host=host_in(repo.path)
    )


def combined(here: Config, given: Config) -> Config:
    """The host's own configuration with what it was told. What a shell may be given stays the host's own decision."""
    chats = {each.key: getattr(given, each.key) for each in SECTIONS}
    patterns = here.authorization
    rules = replace(given.authorization, blocklist=patterns.blocklist, allowlist=patterns.allowlist)
    total = given.budget.total if limits_any(given.budget.total) else here.budget.total
    budget = replace(here.budget, total=total)
    return replace(here, **chats, authorization=rules, approvals=given.approvals, budget=budget)
