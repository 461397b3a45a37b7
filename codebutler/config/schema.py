"""The whole configuration, and a worker's part of it. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from codebutler.config.chats import (
    PERSON,
    SECTIONS,
    ChatSection,
    NewReposSection,
    SlackSection,
    TelegramSection,
)
from codebutler.config.section import (
    BudgetSection,
    DashboardSection,
    McpServer,
    MetricsSection,
    Section,
    ServerName,
    TracingSection,
    Url,
)
from codebutler.domain.refs import NO_PERSON, ConversationRef, PersonRef

Positive = Annotated[int, Meta(ge=1)]
# 0 = no limit.
OrUnlimited = Annotated[int, Meta(ge=0)]
NotNegative = Annotated[float, Meta(ge=0)]
# An untrusted file may set these too: no value may overflow a date or fill the memory.
DayInSeconds = Annotated[float, Meta(ge=0, le=86_400)]
YearInMinutes = Annotated[float, Meta(gt=0, le=525_600)]
Named = Annotated[str, Meta(min_length=1)]
# Below the home directory, not all of it.
HomePath = Annotated[str, Meta(pattern=r"^(?!/|[.]?/*$|.*[.][.]).+\Z")]
# A name (with `*.` in front: all its subdomains) or an address, and optionally a port.
HOST = r"^((\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
Host = Annotated[str, Meta(pattern=HOST)]


AgentName = Literal["claude", "kimi", "native", "rehearsal"]
"""The names of our own agents; `commands` adds others."""
Prefix = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]*\Z")]
ON_LIMIT = r"^(wait|ask|agent [a-z][a-z0-9_-]*)\Z"
PermissionMode = Literal["bypassPermissions", "acceptEdits", "ask", "plan"]


PROGRAMS = (
    "cat", "cmp", "cut", "diff", "du", "file", "find", "git", "grep", "head", "ls", "make", "node", "npm",
    "pwd", "pytest", "python", "python3", "rg", "sort", "stat", "tail", "test", "tr", "true", "uniq", "wc",
)  # fmt: skip
"""Programs that a strict native agent may start."""
SandboxMode = Literal["auto", "bwrap", "docker", "seatbelt", "none"]
AgentNetwork = Literal["auto", "hosts", "open"]
CommandNetwork = Literal["auto", "none", "hosts", "open"]


class AgentSection(Section, frozen=True):
    """Which agent answers, when, and how many turns run at once. ``worktree_days``: a merged worktree is
    removed after this many days without a run, 0 = never. ``on_limit``: what follows when its usage limit is hit
    (``agent NAME``: that one takes over); ``resume_at_reset``: whether waiting runs resume by themselves then."""

    default: Prefix = "claude"
    scope: Literal["thread", "channel"] = "thread"
    debounce_seconds: DayInSeconds = 1
    silence_seconds: DayInSeconds = 60
    busy: Literal["queue", "steer", "reject"] = "queue"
    parallel_turns: Annotated[int, Meta(ge=1, le=64)] = 1
    isolation: Literal["shared", "worktree"] = "shared"
    worktree_days: Annotated[int, Meta(ge=0, le=3650)] = 14
    mention: Literal["always", "mention"] = "always"
    queue_per_user: Annotated[int, Meta(ge=0, le=10_000)] = 200
    on_limit: Annotated[str, Meta(pattern=ON_LIMIT)] = "wait"
    resume_at_reset: bool = True


class ClaudeSection(Section, frozen=True):
    """Claude Code. ``timeout`` is in minutes; ``max_turns`` 0 = no limit."""

    binary: str = "claude"
    model: str = ""
    max_turns: OrUnlimited = 0
    timeout: YearInMinutes = 30
    permission_mode: PermissionMode = "bypassPermissions"
    project_settings: bool = False
    mcp: dict[ServerName, McpServer] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()


class KimiSection(Section, frozen=True):
    """Kimi Code, and the service of the native agent if that is Kimi's. ``timeout`` is in minutes."""

    binary: str = "kimi"
    api_key: str = ""
    base_url: Url = "https://api.moonshot.ai/v1"
    model: str = ""
    timeout: YearInMinutes = 30
    permission_mode: PermissionMode = "bypassPermissions"


class Price(Section, frozen=True):
    """The price of a million tokens of a model, in USD; ``cached_input``: those in the service's cache."""

    input: NotNegative
    output: NotNegative
    cached_input: NotNegative | None = None


class NativeSection(Section, frozen=True):
    """Our own agent. An empty ``base_url``, ``model`` or key, or no ``context_tokens``: the preset's.

    ``strict``: single programs of ``allowed_programs`` instead of a terminal. ``max_turns`` (0 = no limit),
    ``max_usd`` and ``max_tokens`` are per turn. ``web``: it has web_fetch and web_search, which reach the
    public internet from outside the sandbox.
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
    allowed_programs: tuple[Named, ...] = PROGRAMS
    context_tokens: Annotated[int, Meta(ge=4000, le=100_000_000)] | None = None
    max_usd: NotNegative | None = None
    max_tokens: Positive | None = None
    prices: dict[str, Price] = field(default_factory=dict)


class OpenAISection(Section, frozen=True):
    """The service for speech and images."""

    api_key: str = ""
    base_url: Url = "https://api.openai.com/v1"
    transcription_model: Named = "whisper-1"
    image_model: Named = "gpt-image-1"
    language: Annotated[str, Meta(pattern=r"^([a-z]{2})?\Z")] = ""


class TavilySection(Section, frozen=True):
    """The service that searches the web."""

    api_key: str = ""
    base_url: Url = "https://api.tavily.com"


class CommandRule(Section, frozen=True):
    """A prefix that starts a program: ``prefix: text``. ``home_paths``: what an agent may read and write of
    the user's home (its login and sessions)."""

    prefix: Prefix
    binary: Named
    args: tuple[str, ...] = ()
    mode: Literal["headless", "acp", "interactive", "one-shot"] = "one-shot"
    envelope: bool = False
    description: str = ""
    home_paths: tuple[HomePath, ...] = ()


class Check(Section, frozen=True):
    """A check of the repository: a shell command, which may take ``time_limit`` seconds. ``when`` a run has
    changed something: it runs, a button offers it, or neither (`!checks` runs all)."""

    name: Annotated[str, Meta(pattern=r"^\S[^\n]{0,59}\Z")]
    command: Annotated[str, Meta(pattern=r"\S")]
    time_limit: Annotated[float, Meta(gt=0, le=86_400)] = 600
    when: Literal["always", "ask", "never"] = "always"


class ChecksSection(Section, frozen=True):
    """The repository's checks: ``command``, if that is all, else ``commands``; neither = what the repository's files
    suggest. ``repair``: if one fails that ran by itself, the agent is asked to fix it, once."""

    command: str = ""
    commands: tuple[Check, ...] = ()
    repair: bool = True


class GitSection(Section, frozen=True):
    """Where ``!push`` goes: ``remote`` "" = the repository\'s own; ``protected`` branches are never pushed to;
    ``trailers`` end the messages of commits."""

    remote: str = ""
    protected: tuple[Named, ...] = ("main", "master")
    trailers: tuple[Literal["asked", "agent", "thread"], ...] = ()
    local_remotes: tuple[Annotated[str, Meta(pattern=r"^~?/[^\n]*\Z")], ...] = ()


class ForgeSection(Section, frozen=True):
    """The service with the pull requests; without a ``token`` the owner's own `gh` is used. ``follow_hours``: how
    long a pull request is followed after its last news, 0 = not at all."""

    kind: Literal["auto", "github", "gitlab", "none"] = "auto"
    token: str = ""
    api_url: Annotated[str, Meta(pattern=r"^(https?://.*)?\Z")] = ""
    describe: bool = True
    follow_hours: Annotated[float, Meta(ge=0, le=720)] = 24


class MemorySection(Section, frozen=True):
    """The memory. ``review``: facts learned from a conversation are kept at once, after a person's approval (``ask``),
    or not at all."""

    review: Literal["auto", "ask", "off"] = "auto"


class SkillsSection(Section, frozen=True):
    """The skills. ``disabled``: names of skills that no agent gets."""

    disabled: tuple[Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*\Z")], ...] = ()


class EnvelopeSection(Section, frozen=True):
    """Programs that use envelopes: what they are told about them, and how long an open one may wait."""

    prompt_file: str = ""
    activation_delay_ms: Annotated[int, Meta(ge=0)] = 1500
    unclosed_timeout_ms: Positive = 30000


class OutputSection(Section, frozen=True):
    """How much is posted, how often, and how long one message gets. ``changes``: how a run's changes are shown."""

    flush_interval_ms: Annotated[int, Meta(ge=250, le=3_600_000)] = 2000
    max_chars_per_message: Annotated[int, Meta(ge=200, le=11000)] = 3500
    verbosity: Literal["quiet", "normal", "verbose"] = "normal"
    progress_after_seconds: Annotated[float, Meta(ge=0, le=3600)] = 3
    changes: Literal["card", "line", "off"] = "card"


class CatchUpSection(Section, frozen=True):
    """Messages sent while nothing ran: those older than this are asked about instead of run."""

    max_age_hours: Annotated[float, Meta(ge=0, le=87_600)] = 12


class SessionSection(Section, frozen=True):
    """How long a program may run."""

    timeout_minutes: YearInMinutes = 30


class LogsSection(Section, frozen=True):
    """The log level, and how many days logs are kept."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    retention_days: Positive = 30


class WorkerSection(Section, frozen=True):
    """When an idle worker sleeps; 0 = never."""

    idle_sleep_minutes: Annotated[float, Meta(ge=0, le=525_600)] = 15


class SandboxSection(Section, frozen=True):
    """The sandbox around an agent, and the limits for it and everything it starts; 0 = no limit, None = the
    default of that kind of sandbox.

    ``network``: what agents reach; ``hosts``: if that is a list, its entries besides the model's service.
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
    """Which people (``*`` = everybody in ``allowedUsers``) may use which prefixes in which channels."""

    channels: tuple[ConversationRef, ...]
    users: tuple[PersonRef, ...]
    allowed_prefixes: tuple[str, ...]


class AuthorizationSection(Section, frozen=True):
    """Who may use which agents, and RE2 patterns for the input of shells: a match in ``blocklist`` is refused, and so
    is anything that does not match the ``allowlist``, if there is one. ``may_loosen``: whose runs may have a mode that
    asks less than the configured one (``*`` = everybody in ``allowedUsers``)."""

    rules: tuple[AuthorizationRule, ...] = ()
    may_loosen: tuple[PersonRef, ...] = ()
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
    """Who decides about calls. ``quorum``: how many different people have to allow a call that fits a pattern (some
    words of it); the person who asked for it counts only with ``requester_votes``. ``operator``: the chat user at this
    machine's terminal, "" = unknown. ``expiry_minutes``: an undecided call is refused after this long, 0 = never."""

    quorum: dict[Named, Annotated[int, Meta(ge=1, le=100)]] = field(default_factory=dict)
    requester_votes: bool = False
    operator: Annotated[PersonRef, Meta(pattern=PERSON)] = NO_PERSON
    expiry_minutes: Annotated[float, Meta(ge=0, le=525_600)] = 0


class LedgerSection(Section, frozen=True):
    """When the costs of the last seven days are posted, "" = never: in the repository's channel, or in a direct
    message to a person."""

    weekly: Annotated[
        str, Meta(pattern=r"^((mon|tue|wed|thu|fri|sat|sun) ([01][0-9]|2[0-3]):[0-5][0-9])?\Z")
    ] = ""
    weekly_to: Annotated[PersonRef, Meta(pattern=PERSON)] = NO_PERSON


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
    git: GitSection = GitSection()
    forge: ForgeSection = ForgeSection()
    memory: MemorySection = MemorySection()
    skills: SkillsSection = SkillsSection()
    envelope: EnvelopeSection = EnvelopeSection()
    output: OutputSection = OutputSection()
    session: SessionSection = SessionSection()
    logs: LogsSection = LogsSection()
    worker: WorkerSection = WorkerSection()
    catch_up: CatchUpSection = CatchUpSection()
    dashboard: DashboardSection = DashboardSection()
    metrics: MetricsSection = MetricsSection()
    tracing: TracingSection = TracingSection()
    budget: BudgetSection = BudgetSection()
    ledger: LedgerSection = LedgerSection()
    new_repos: NewReposSection = NewReposSection()

    @property
    def chats(self) -> tuple[ChatSection, ...]:
        """Its sections for all chats."""
        return tuple(getattr(self, each.key) for each in SECTIONS)

    @property
    def chat(self) -> ChatSection:
        """The repository's chat; the first one while it has no place yet."""
        return next((each for each in reversed(self.chats) if each.place), self.chats[0])

    @property
    def channel_id(self) -> ConversationRef:
        """The repository's place, in any chat; "" if none yet."""
        return self.chat.place

    @property
    def channel_name(self) -> str:
        """The place's name for people."""
        return self.chat.place_name


class RepoSettings(Struct, frozen=True, kw_only=True):
    """A worker's settings for its repository. The chats' sections come without tokens. ``host``: the machine's name in
    a cluster."""

    name: str
    path: str
    channel_id: ConversationRef
    config: Config
    agent_env: dict[str, str] = {}
    skills_digest: str = ""
    host: str = ""
