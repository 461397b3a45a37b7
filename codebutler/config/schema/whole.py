"""The whole configuration, and what a worker is told of it. Pure."""

from __future__ import annotations

from msgspec import Struct

from codebutler.config.schema.agents import (
    AgentSection,
    ChecksSection,
    ClaudeSection,
    CommandRule,
    KimiSection,
    MemorySection,
    NativeSection,
    OpenAISection,
    SkillsSection,
    TavilySection,
)
from codebutler.config.schema.bounds import Section
from codebutler.config.schema.budget import BudgetSection
from codebutler.config.schema.chat import CatchUpSection, EnvelopeSection, OutputSection, SlackSection
from codebutler.config.schema.running import DashboardSection, LogsSection, SessionSection, WorkerSection
from codebutler.config.schema.safety import ApprovalsSection, AuthorizationSection, SandboxSection


class Config(Section, frozen=True):
    """The whole configuration of one repository (or, without a channel, the global one)."""

    slack: SlackSection = SlackSection()
    agent: AgentSection = AgentSection()
    claude: ClaudeSection = ClaudeSection()
    kimi: KimiSection = KimiSection()
    native: NativeSection = NativeSection()
    openai: OpenAISection = OpenAISection()
    tavily: TavilySection = TavilySection()
    sandbox: SandboxSection = SandboxSection()
    commands: tuple[CommandRule, ...] = ()
    authorization: AuthorizationSection = AuthorizationSection()
    approvals: ApprovalsSection = ApprovalsSection()
    checks: ChecksSection = ChecksSection()
    memory: MemorySection = MemorySection()
    skills: SkillsSection = SkillsSection()
    envelope: EnvelopeSection = EnvelopeSection()
    output: OutputSection = OutputSection()
    session: SessionSection = SessionSection()
    logs: LogsSection = LogsSection()
    worker: WorkerSection = WorkerSection()
    catch_up: CatchUpSection = CatchUpSection()
    dashboard: DashboardSection = DashboardSection()
    budget: BudgetSection = BudgetSection()


class RepoSettings(Struct, frozen=True, kw_only=True):
    """What a worker is told of its repository. The Slack section travels without tokens."""

    name: str
    path: str
    channel_id: str
    config: Config
    agent_env: dict[str, str] = {}
    skills_digest: str = ""
