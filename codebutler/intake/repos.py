"""The repositories this supervisor serves, each with its configuration, and the problems of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from codebutler.config.channels import served_chats, without_tokens
from codebutler.config.chats import ChatName, chat_of
from codebutler.config.paths import Home
from codebutler.config.programs import RUN
from codebutler.config.registry import Registry, RepoEntry
from codebutler.config.resolve import (
    SECRET_AGENT_VARIABLES,
    env_file_values,
    resolve_global,
    resolve_repo,
    secrets_of,
)
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.errors import ConfigError
from codebutler.domain.refs import NO_CHANNEL, ConversationRef, PersonRef

# What an agent's program reads from the environment to reach its service; it gets nothing else.
AGENT_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
)


def with_env_file(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    """``env``, plus what agents read of the home's ``.env``: a service does not see a shell's variables.

    Raises ConfigError if the file cannot be used.
    """
    kept = env_file_values(home)
    return {name: kept[name] for name in AGENT_VARIABLES if name in kept} | dict(env)


@dataclass(frozen=True, slots=True)
class Repo:
    """A repository as the intake sees it. ``prefixes`` are those of its agents."""

    name: str
    config: Config
    prefixes: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Cached: each event asks for them."""
        configured = {rule.prefix for rule in self.config.commands}
        prefixes = frozenset(configured | {self.config.agent.default, "rehearsal", RUN.prefix})
        object.__setattr__(self, "prefixes", prefixes)


class Served(Struct, frozen=True):
    """A registered repository that can be served, with its configuration."""

    entry: RepoEntry
    config: Config
    notes: tuple[str, ...]
    trusted: bool

    @property
    def channel_id(self) -> ConversationRef:
        """The repository's channel."""
        return self.config.channel_id

    @property
    def repo(self) -> Repo:
        """The repository as the intake sees it."""
        return Repo(self.entry.name, self.config)

    @property
    def unheard(self) -> str:
        """Why no message in its channel is heard; "" if they are."""
        return self.config.chat.unheard

    def settings(self, env: Mapping[str, str]) -> RepoSettings:
        """As its worker sees it: without chat tokens, and with only those environment variables that agents
        need."""
        return RepoSettings(
            name=self.entry.name,
            path=self.entry.path,
            channel_id=self.channel_id,
            config=without_tokens(self.config),
            agent_env={name: env[name] for name in AGENT_VARIABLES if env.get(name)},
            skills_digest=self.entry.skills_digest,
        )


class Unserved(Struct, frozen=True):
    """One that cannot be served, and the line that says what to do about it."""

    entry: RepoEntry
    problem: str


class RepoTable(Struct, frozen=True):
    """All registered repositories, as read at one moment; read it again to see changes. ``config``: what holds for all
    of them."""

    served: tuple[Served, ...]
    unserved: tuple[Unserved, ...] = ()
    config: Config = msgspec.field(default_factory=Config)

    @classmethod
    def read(cls, home: Home, env: Mapping[str, str], *, of_hosts: bool = False) -> RepoTable:
        """One repository's fault does not affect the others. ``of_hosts``: serve those of a cluster's hosts, not this
        machine's. Raises ConfigError for a damaged registry."""
        served: list[Served] = []
        unserved: list[Unserved] = []
        for entry in Registry(home).load():
            try:
                _check_machine(entry, of_hosts=of_hosts)
                resolved = resolve_repo(home, entry, env)
                _check_place(entry.name, resolved.config)
                served.append(Served(entry, resolved.config, resolved.notes, resolved.trusted))
            except ConfigError as error:
                unserved.append(Unserved(entry, str(error)))
        return cls(tuple(served), tuple(unserved), resolve_global(home, env).config)

    def keeping(self, earlier: RepoTable) -> RepoTable:
        """A served repository that is still registered stays served while its file cannot be read: an agent
        that breaks its own configuration takes nothing out of service."""
        broken = {each.entry.name: each for each in self.unserved}
        kept = [each for each in earlier.served if _same_place(each.entry, broken.get(each.entry.name))]
        return RepoTable((*self.served, *kept), self.unserved, self.config)

    def of_chats(self, chats: Collection[ChatName]) -> RepoTable:
        """Without the repositories of chats that were not set up when this supervisor started."""
        served = [each for each in self.served if chat_of(each.channel_id) in chats]
        left_out = [
            Unserved(
                each.entry, f"{each.entry.name}: restart the supervisor to connect {chat_of(each.channel_id)}"
            )
            for each in self.served
            if each not in served
        ]
        return RepoTable(tuple(served), (*self.unserved, *left_out), self.config)

    def by_channel(self) -> dict[ConversationRef, Repo]:
        """Channel ID to repository; with ``listenChannels`` set, only those channels."""
        return {each.channel_id: each.repo for each in self.served if not each.unheard}

    def channels(self) -> set[ConversationRef]:
        """Every channel that a registered repository has, served or not."""
        configured = {each.channel_id for each in self.served}
        served = {each.entry.channel_id for each in self.served}
        unserved = {each.entry.channel_id for each in self.unserved}
        return (configured | served | unserved) - {NO_CHANNEL}

    @property
    def absent(self) -> tuple[Unserved, ...]:
        """The repositories that are not served, not even with an earlier configuration."""
        return tuple(each for each in self.unserved if self.named(each.entry.name) is None)

    def named(self, name: str) -> Served | None:
        """The served repository of that name."""
        return next((each for each in self.served if each.entry.name == name), None)

    def secrets(self, env: Mapping[str, str]) -> set[str]:
        """Every secret value in force, including those in an agent's environment, for the redactor."""
        found = {env[name] for name in SECRET_AGENT_VARIABLES if env.get(name)}
        for each in self.served:
            found |= secrets_of(each.config)
        return found


class Repos:
    """The repositories served now. ``direct`` are the known direct conversations, which may be about any of
    them."""

    def __init__(self, table: RepoTable, direct: Callable[[], Collection[ConversationRef]]) -> None:
        self._direct = direct
        self.by_channel: dict[ConversationRef, Repo] = {}
        """Channel ID to repository: always the same dictionary, with what is served now."""
        self.use(table)

    def use(self, table: RepoTable) -> None:
        """Serve these from now on."""
        self.table = table
        self.by_channel.clear()
        self.by_channel.update(table.by_channel())

    def listened(self, chat: ChatName) -> dict[ConversationRef, Repo]:
        """Channel ID to repository for one chat, including each of its direct conversations."""
        everywhere = {**self.by_channel, **dict.fromkeys(self._direct(), Repo("direct messages", Config()))}
        return {channel: repo for channel, repo in everywhere.items() if chat_of(channel) == chat}

    def channels(self, table: RepoTable | None = None) -> set[ConversationRef]:
        """The channels to listen in with ``table``: the repositories' channels and the direct conversations."""
        return (table or self.table).channels() | set(self._direct())

    def people(self) -> frozenset[PersonRef]:
        """Everybody who may talk to a repository."""
        return frozenset(user for served in self.table.served for user in served.config.chat.allowed_ids)

    def name_of(self, channel: ConversationRef) -> str:
        """The repository of the channel; "" if there is none."""
        repo = self.by_channel.get(channel)
        return "" if repo is None else repo.name

    def named(self, name: str) -> Served | None:
        """The repository that is served under that name now."""
        return self.table.named(name)

    def path_of(self, name: str) -> Path | None:
        """The path of a served repository; None if it is not served, or not on this machine."""
        served = self.table.named(name)
        return path if served is not None and (path := Path(served.entry.path)).is_dir() else None


def _check_machine(entry: RepoEntry, *, of_hosts: bool) -> None:
    if of_hosts and not entry.host:
        raise ConfigError(
            f"{entry.name}: it is on this machine, but a gateway serves only hosts: run `codebutler remove-repo "
            f"{entry.name}`, then `codebutler add-repo HOST:{entry.name}`"
        )
    if entry.host and not of_hosts:
        raise ConfigError(f"{entry.name}: it is on the host {entry.host}: serve it with `codebutler gateway`")


def _check_place(name: str, config: Config) -> None:
    if not config.channel_id:
        raise ConfigError(f"{name}: it has no channel: run `codebutler add-repo` for it again")
    if (chat := chat_of(config.channel_id)) not in served_chats(config):
        raise ConfigError(f"{name}: there is no token for {chat}: run `codebutler setup`")


def _same_place(entry: RepoEntry, broken: Unserved | None) -> bool:
    return broken is not None and broken.entry.path == entry.path and Path(entry.path).is_dir()
