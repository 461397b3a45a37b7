"""The shape of the configuration, its defaults and its ranges. Pure: reading and merging are elsewhere.

One struct per section of ``config.json``. JSON keys are camelCase; unknown keys are refused.
"""

from __future__ import annotations

from codebutler.config.schema.agents import (
    AgentName,
    AgentSection,
    ClaudeSection,
    CommandRule,
    KimiSection,
    MemorySection,
    NativeSection,
    OpenAISection,
    PermissionMode,
    Price,
    SkillsSection,
    TavilySection,
)
from codebutler.config.schema.bounds import HOST, USER_ID
from codebutler.config.schema.budget import BudgetSection, Limit
from codebutler.config.schema.chat import OutputSection, SlackSection, TelegramSection
from codebutler.config.schema.running import DashboardSection, WorkerSection
from codebutler.config.schema.safety import (
    AgentNetwork,
    ApprovalsSection,
    AuthorizationRule,
    AuthorizationSection,
    CommandNetwork,
    SandboxMode,
    SandboxSection,
)
from codebutler.config.schema.whole import TELEGRAM, Config, RepoSettings, telegram_id

__all__ = [
    "HOST",
    "TELEGRAM",
    "USER_ID",
    "AgentName",
    "AgentNetwork",
    "AgentSection",
    "ApprovalsSection",
    "AuthorizationRule",
    "AuthorizationSection",
    "BudgetSection",
    "ClaudeSection",
    "CommandNetwork",
    "CommandRule",
    "Config",
    "DashboardSection",
    "KimiSection",
    "Limit",
    "MemorySection",
    "NativeSection",
    "OpenAISection",
    "OutputSection",
    "PermissionMode",
    "Price",
    "RepoSettings",
    "SandboxMode",
    "SandboxSection",
    "SkillsSection",
    "SlackSection",
    "TavilySection",
    "TelegramSection",
    "WorkerSection",
    "telegram_id",
]
