"""What a host is told of its repository, and what it makes of that."""

from __future__ import annotations

import msgspec

from codebutler.config.channels import settings_for_host, with_gateway_settings
from codebutler.config.chats import SlackSection, TelegramSection
from codebutler.config.schema import (
    AgentSection,
    ApprovalsSection,
    AuthorizationRule,
    AuthorizationSection,
    Config,
    OpenAISection,
    RepoSettings,
    SandboxSection,
)
from codebutler.config.section import BudgetSection, DailyLimit, TotalLimit

RULE = AuthorizationRule(channels=("C1",), users=("U1",), allowed_prefixes=("claude",))


def told() -> RepoSettings:
    config = Config(
        slack=SlackSection(bot_token="xoxb-secret", app_token="xapp-secret", allowed_users=("U1",)),
        telegram=TelegramSection(bot_token="123:secret"),
        openai=OpenAISection(api_key="sk-secret"),
        authorization=AuthorizationSection(rules=(RULE,), blocklist=("gateway",)),
        approvals=ApprovalsSection(quorum={"push": 2}),
        sandbox=SandboxSection(mode="none"),
        budget=BudgetSection(total=TotalLimit(turns_per_day=5), repo=DailyLimit(turns_per_day=1)),
    )
    settings = RepoSettings(
        name="shop", path="laptop:shop", channel_id="C1", config=config, agent_env={"KEY": "secret"}
    )
    return settings_for_host(settings)


def test_no_token_and_no_key_leaves_the_gateway() -> None:
    assert b"secret" not in msgspec.json.encode(told())


def test_who_may_speak_and_decide_is_the_gateways() -> None:
    here = Config(
        slack=SlackSection(allowed_users=("U9",)),
        authorization=AuthorizationSection(may_loosen=("*",)),
        approvals=ApprovalsSection(quorum={}),
    )
    config = with_gateway_settings(here, told().config)
    assert config.chat.allowed_ids == ("U1",)
    assert config.authorization.rules == (RULE,)
    assert config.authorization.may_loosen == ()
    assert config.approvals.quorum == {"push": 2}


def test_what_runs_on_the_machine_and_how_is_its_own() -> None:
    here = Config(
        agent=AgentSection(default="kimi"),
        openai=OpenAISection(api_key="sk-own"),
        sandbox=SandboxSection(mode="bwrap"),
        authorization=AuthorizationSection(blocklist=("own",), allowlist=("too",)),
    )
    config = with_gateway_settings(here, told().config)
    assert (config.agent, config.openai, config.sandbox) == (here.agent, here.openai, here.sandbox)
    assert config.authorization.blocklist == ("own",)
    assert config.authorization.allowlist == ("too",)


def test_the_budget_of_all_together_is_the_gateways_if_it_has_one() -> None:
    own = BudgetSection(total=TotalLimit(turns_per_day=9), repo=DailyLimit(turns_per_day=2))
    here = Config(budget=own)
    config = with_gateway_settings(here, told().config)
    assert config.budget == BudgetSection(total=TotalLimit(turns_per_day=5), repo=own.repo)
    assert with_gateway_settings(here, Config()).budget == own
