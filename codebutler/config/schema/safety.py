"""The sections about what agents may do, and behind which walls. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from codebutler.config.schema.bounds import Host, Section

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
