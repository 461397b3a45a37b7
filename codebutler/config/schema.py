"""The whole configuration, and what a worker is told of it. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

Positive = Annotated[int, Meta(ge=1)]
# 0 = no limit.
OrUnlimited = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0)]
# An untrusted file may set these too: no number of them overflows a date or fills the memory.
DayInSeconds = Annotated[float, Meta(ge=0, le=86_400)]
YearInMinutes = Annotated[float, Meta(gt=0, le=525_600)]
Url = Annotated[str, Meta(pattern=r"^https?://")]
ChannelID = Annotated[str, Meta(pattern=r"^([CGD][A-Z0-9]{2,})?\Z")]
USER_ID = r"^[UW][A-Z0-9]{2,}\Z"
UserID = Annotated[str, Meta(pattern=USER_ID)]
# Telegram: at most 52 significant bits; groups are negative, people are not.
TelegramChat = Annotated[int, Meta(ge=-(2**52), le=2**52)]
TelegramUser = Annotated[int, Meta(ge=1, le=2**52)]
# Below the home directory, and not the whole of it.
HomePath = Annotated[str, Meta(pattern=r"^(?!/|[.]?/*$|.*[.][.]).+\Z")]
# A name (`*.` before it: whatever ends so) or an address, and perhaps a port.
HOST = r"^((\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
Host = Annotated[str, Meta(pattern=HOST)]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the configuration."""


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
    max_turns: OrUnlimited = 0
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
    max_turns: OrUnlimited = 0
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


class DailyLimit(Section, frozen=True):
    """A daily budget; None = unlimited. Minutes are those in which an agent works."""

    usd_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    tokens_per_day: Annotated[int, Meta(ge=1, le=10**15)] | None = None
    turns_per_day: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    minutes_per_day: Annotated[float, Meta(ge=0, le=1e9)] | None = None


class BudgetSection(Section, frozen=True):
    """What agents may use in one repository on one day of ``timezone`` (IANA; "" = the machine's own): all of them
    together, those that one user, one thread (conversation) or one scheduled job has asked."""

    timezone: str = ""
    repo: DailyLimit = DailyLimit()
    user: DailyLimit = DailyLimit()
    thread: DailyLimit = DailyLimit()
    job: DailyLimit = DailyLimit()


class SlackSection(Section, frozen=True):
    """The workspace, the repository's channel, and who may speak there."""

    bot_token: str = ""
    app_token: str = ""
    api_base_url: Url = "https://slack.com/api/"
    channel_id: ChannelID = field(default="", name="channelID")
    channel_name: str = ""
    allowed_users: tuple[UserID, ...] = ()
    listen_channels: tuple[ChannelID, ...] = ()


class TelegramSection(Section, frozen=True):
    """The bot, the repository's chat (0 = none), and who may speak there, by their numbers."""

    bot_token: str = ""
    api_base_url: Url = "https://api.telegram.org/"
    chat_id: TelegramChat = 0
    chat_name: str = ""
    allowed_users: tuple[TelegramUser, ...] = ()


class EnvelopeSection(Section, frozen=True):
    """Programs that speak in envelopes: what they are told of them, and how long is waited for one to close."""

    prompt_file: str = ""
    activation_delay_ms: Annotated[int, Meta(ge=0)] = 1500
    unclosed_timeout_ms: Positive = 30000


class OutputSection(Section, frozen=True):
    """How much is said, how often, and how long one message gets."""

    flush_interval_ms: Annotated[int, Meta(ge=250, le=3_600_000)] = 2000
    max_chars_per_message: Annotated[int, Meta(ge=200, le=11000)] = 3500
    verbosity: Literal["quiet", "normal", "verbose"] = "normal"
    progress_after_seconds: Annotated[float, Meta(ge=0, le=3600)] = 3


class CatchUpSection(Section, frozen=True):
    """Messages from while nothing ran: older ones than this are asked about instead of run."""

    max_age_hours: Annotated[float, Meta(ge=0, le=87_600)] = 12


class SessionSection(Section, frozen=True):
    """How long a program may run."""

    timeout_minutes: YearInMinutes = 30


class LogsSection(Section, frozen=True):
    """What is logged, and for how many days it is kept."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    retention_days: Positive = 30


class WorkerSection(Section, frozen=True):
    """When a worker with nothing to do sleeps; 0 = never."""

    idle_sleep_minutes: Annotated[float, Meta(ge=0, le=525_600)] = 15


class DashboardSection(Section, frozen=True):
    """Where the supervisor serves HTTP."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 7788


SandboxMode = Literal["auto", "bwrap", "docker", "seatbelt", "none"]
AgentNetwork = Literal["auto", "hosts", "open"]
CommandNetwork = Literal["auto", "none", "hosts", "open"]


class SandboxSection(Section, frozen=True):
    """The walls around an agent, and what it and all it starts may use up together; 0 = no limit, None = what is usual
    behind those walls.

    ``network``: what agents reach; ``hosts``: where that is a list, what is on it besides the model's service.
    ``readable``: directories outside the repository that they may read: toolchains in the home.
    """

    mode: SandboxMode = "auto"
    network: AgentNetwork = "auto"
    command_network: CommandNetwork = "auto"
    hosts: tuple[Host, ...] = ()
    readable: tuple[Annotated[str, Meta(pattern=r"^~?/[^/\n][^\n]*\Z")], ...] = ()
    memory_mb: Annotated[int, Meta(ge=0, le=2**24)] | None = None
    processes: Annotated[int, Meta(ge=0, le=2**22)] | None = None
    file_size_gb: Annotated[int, Meta(ge=0, le=2**20)] = 10
    cpus: Annotated[float, Meta(ge=0, le=4096)] | None = None


class AuthorizationRule(Section, frozen=True):
    """Who (``*`` = everybody in ``allowedUsers``) may use which prefixes where."""

    channels: tuple[str, ...]
    users: tuple[str, ...]
    allowed_prefixes: tuple[str, ...]


class AuthorizationSection(Section, frozen=True):
    """Who may use which agents, and RE2 patterns tried on what a shell is given: what fits ``blocklist`` is refused,
    and if there is an ``allowlist``, what does not fit that."""

    rules: tuple[AuthorizationRule, ...] = ()
    blocklist: tuple[str, ...] = (
        r"\brm\s+(-\S+\s+)*-[a-z]*[rR][a-zA-Z]*\s+(-\S+\s+)*(/|~|\$HOME)/?\*?(\s|$)",
        r"\bmkfs(\.\w+)?\b",
        r"\bdd\b.*\bof=/dev/([^ns]|n[^u]|s[^t]|st[^d]|std[^o]|(null|stdout)\w)",
        r":\(\)\s*\{.*\};\s*:",
        r"(^|[;&|(]|\bsudo|\bsystemctl)\s*(shutdown|reboot|halt|poweroff)\b",
        r">\s*/dev/(sd|nvme|vd)",
    )
    allowlist: tuple[str, ...] = ()


class ApprovalsSection(Section, frozen=True):
    """``quorum``: how many different people have to allow a call that a pattern (some words of it) fits; whoever asked
    for it is one of them only if ``requester_votes``. ``operator``: the chat user who works at this machine's
    terminal, "" = not told. ``expiry_minutes``: after how long without a decision it is refused, 0 = never."""

    quorum: dict[Annotated[str, Meta(min_length=1)], Annotated[int, Meta(ge=1, le=100)]] = field(
        default_factory=dict
    )
    requester_votes: bool = False
    operator: Annotated[str, Meta(pattern=r"^([UW][A-Z0-9]{2,}|tg:[0-9]{1,16})?\Z")] = ""
    expiry_minutes: Annotated[float, Meta(ge=0, le=525_600)] = 0


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
