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
from codebutler.config.schema.chat import (
    CatchUpSection,
    EnvelopeSection,
    OutputSection,
    SlackSection,
    TelegramSection,
)
from codebutler.config.schema.running import DashboardSection, LogsSection, SessionSection, WorkerSection
from codebutler.config.schema.safety import ApprovalsSection, AuthorizationSection, SandboxSection

TELEGRAM = "tg:"
"""Before the number of a chat or a person of Telegram: no id of theirs is one of Slack's."""


def telegram_id(number: int) -> str:
    """A chat or a person of Telegram, as everybody but its adapter knows them."""
    return f"{TELEGRAM}{number}"


class Config(Section, frozen=True):
    """The whole configuration of one repository (or, without a channel, the global one)."""

    slack: SlackSection = SlackSection()
    telegram: TelegramSection = TelegramSection()
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

    @property
    def is_on_telegram(self) -> bool:
        """Whether the repository is spoken to there; else it is in Slack."""
        return self.telegram.chat_id != 0

    @property
    def channel_id(self) -> str:
        """Where the repository is spoken to, whatever the chat; "" if nowhere yet."""
        return telegram_id(self.telegram.chat_id) if self.is_on_telegram else self.slack.channel_id

    @property
    def channel_name(self) -> str:
        """What people call that place."""
        return self.telegram.chat_name if self.is_on_telegram else self.slack.channel_name

    @property
    def allowed_users(self) -> tuple[str, ...]:
        """Who may speak there. Nobody of another chat."""
        if self.is_on_telegram:
            return tuple(map(telegram_id, self.telegram.allowed_users))
        return self.slack.allowed_users


class RepoSettings(Struct, frozen=True, kw_only=True):
    """What a worker is told of its repository. The chats' sections travel without tokens."""

    name: str
    path: str
    channel_id: str
    config: Config
    agent_env: dict[str, str] = {}
    skills_digest: str = ""
