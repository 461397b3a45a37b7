"""The sections about agents, the services that they use and what they know. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from codebutler.config.schema.bounds import (
    DayInSeconds,
    HomePath,
    Limit,
    NotNegative,
    Positive,
    Section,
    Url,
    YearInMinutes,
)

AgentName = Literal["claude", "kimi", "native", "rehearsal"]
PermissionMode = Literal["bypassPermissions", "acceptEdits", "ask", "plan"]


PROGRAMS = (
    "cat", "cmp", "cut", "diff", "du", "file", "find", "git", "grep", "head", "ls", "make", "node", "npm",
    "pwd", "pytest", "python", "python3", "rg", "sort", "stat", "tail", "test", "tr", "true", "uniq", "wc",
)  # fmt: skip
"""What a strict native agent may start."""


class AgentSection(Section, frozen=True):
    """Which agent answers, when, and how many turns there are at a time."""

    default: AgentName = "claude"
    scope: Literal["thread", "channel"] = "thread"
    debounce_seconds: DayInSeconds = 1
    silence_seconds: DayInSeconds = 60
    busy: Literal["queue", "steer", "reject"] = "queue"
    parallel_turns: Annotated[int, Meta(ge=1, le=64)] = 1
    isolation: Literal["shared", "worktree"] = "shared"
    mention: Literal["always", "mention"] = "always"
    queue_per_user: Annotated[int, Meta(ge=0, le=10_000)] = 200


class ClaudeSection(Section, frozen=True):
    """Claude Code. ``timeout`` is in minutes; ``max_turns`` 0 = no limit."""

    binary: str = "claude"
    model: str = ""
    max_turns: Limit = 0
    timeout: YearInMinutes = 30
    permission_mode: PermissionMode = "bypassPermissions"
    project_settings: bool = False
    extra_args: tuple[str, ...] = ()


class KimiSection(Section, frozen=True):
    """Kimi Code, and the service of the native agent where that is Kimi's. ``timeout`` is in minutes."""

    binary: str = "kimi"
    api_key: str = ""
    base_url: Url = "https://api.moonshot.ai/v1"
    model: str = ""
    timeout: YearInMinutes = 30
    permission_mode: PermissionMode = "bypassPermissions"


class Price(Section, frozen=True):
    """What a million tokens of a model cost, in USD; ``cached_input``: those that the service had seen before."""

    input: NotNegative
    output: NotNegative
    cached_input: NotNegative | None = None


class NativeSection(Section, frozen=True):
    """Our own agent. An empty ``base_url``, ``model`` or key, or no ``context_tokens``: the preset's.

    ``strict``: single programs of ``allowed_programs`` instead of a terminal. ``max_turns`` (0 = no limit), ``max_usd``
    and ``max_tokens`` are for one turn. ``web``: whether it is offered web_fetch and web_search, which reach the public
    internet from outside the walls.
    """

    preset: Literal["kimi", "groq", "openai", "ollama"] = "kimi"
    base_url: Annotated[str, Meta(pattern=r"^(https?://.*)?\Z")] = ""
    api_key: str = ""
    model: str = ""
    max_turns: Limit = 0
    timeout: YearInMinutes = 30
    permission_mode: PermissionMode = "bypassPermissions"
    web: bool = True
    strict: bool = False
    allowed_programs: tuple[Annotated[str, Meta(min_length=1)], ...] = PROGRAMS
    context_tokens: Annotated[int, Meta(ge=4000, le=100_000_000)] | None = None
    max_usd: NotNegative | None = None
    max_tokens: Positive | None = None
    prices: dict[str, Price] = field(default_factory=dict)


class OpenAISection(Section, frozen=True):
    """The service for speech and pictures."""

    api_key: str = ""
    base_url: Url = "https://api.openai.com/v1"
    transcription_model: Annotated[str, Meta(min_length=1)] = "whisper-1"
    image_model: Annotated[str, Meta(min_length=1)] = "gpt-image-1"
    language: Annotated[str, Meta(pattern=r"^([a-z]{2})?\Z")] = ""


class TavilySection(Section, frozen=True):
    """The service that searches the web."""

    api_key: str = ""
    base_url: Url = "https://api.tavily.com"


class CommandRule(Section, frozen=True):
    """A prefix that starts a program: ``prefix: text``. ``home_paths``: what of the user's home an agent may read and
    write (its login and sessions)."""

    prefix: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]*\Z")]
    binary: Annotated[str, Meta(min_length=1)]
    args: tuple[str, ...] = ()
    mode: Literal["headless", "acp", "interactive", "one-shot"] = "one-shot"
    envelope: bool = False
    description: str = ""
    home_paths: tuple[HomePath, ...] = ()


class ChecksSection(Section, frozen=True):
    """``command``: what `!checks` runs in a shell; "" = what the repository's files suggest."""

    command: str = ""


class MemorySection(Section, frozen=True):
    """``review``: what is learned of a conversation is kept at once, after a person's look (``ask``), or not at all."""

    review: Literal["auto", "ask", "off"] = "auto"


class SkillsSection(Section, frozen=True):
    """``disabled``: skills that no agent is offered, by name."""

    disabled: tuple[Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*\Z")], ...] = ()
