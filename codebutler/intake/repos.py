"""The repositories this supervisor serves, each with its configuration, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from codebutler.config.channels import ChatName, chat_of, served_chats
from codebutler.config.paths import Home
from codebutler.config.programs import RUN
from codebutler.config.registry import Registry, RepoEntry
from codebutler.config.resolve import env_file_values, resolve_repo
from codebutler.config.schema import Config, RepoSettings, SlackSection, TelegramSection
from codebutler.config.secrets import SECRET_AGENT_VARIABLES, secrets_of
from codebutler.domain.errors import ConfigError

# What an agent's program reads from the environment to reach its service; nothing else of ours gets there.
AGENT_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "AWS_REGION",
    "AWS_PROFILE",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
)


def with_env_file(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    """``env``, and what agents read of the home's ``.env``: a service does not see anybody's shell.

    Raises ConfigError if the file cannot be used.
    """
    kept = env_file_values(home)
    return {name: kept[name] for name in AGENT_VARIABLES if name in kept} | dict(env)


def without_tokens(config: Config) -> Config:
    """As a worker is told it: of the chats only its own place, and who may speak there."""
    slack, telegram = config.slack, config.telegram
    return msgspec.structs.replace(
        config,
        slack=SlackSection(
            channel_id=slack.channel_id, channel_name=slack.channel_name, allowed_users=slack.allowed_users
        ),
        telegram=TelegramSection(
            chat_id=telegram.chat_id, chat_name=telegram.chat_name, allowed_users=telegram.allowed_users
        ),
    )


@dataclass(frozen=True, slots=True)
class Repo:
    """What the intake needs to know of a repository. ``prefixes`` are the words that name an agent here."""

    name: str
    config: Config
    prefixes: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Each event asks for them."""
        configured = {rule.prefix for rule in self.config.commands}
        prefixes = frozenset(configured | {self.config.agent.default, "rehearsal", RUN.prefix})
        object.__setattr__(self, "prefixes", prefixes)


@dataclass(frozen=True)
class Served:
    """One repository that can be served."""

    entry: RepoEntry
    config: Config
    notes: tuple[str, ...]
    trusted: bool

    @property
    def channel_id(self) -> str:
        """Where it is spoken to."""
        return self.config.channel_id

    @property
    def repo(self) -> Repo:
        """As the intake sees it."""
        return Repo(self.entry.name, self.config)

    @property
    def unheard(self) -> str:
        """Why nothing that is said in its channel is heard; "" if it is."""
        heard, channel = self.config.slack.listen_channels, self.channel_id
        if not heard or self.config.is_on_telegram or channel in heard:
            return ""
        return f"nothing said in {channel} is heard: add it to slack.listenChannels (SLACK_LISTEN_CHANNELS)"

    def settings(self, env: Mapping[str, str]) -> RepoSettings:
        """As its worker sees it: no token of a chat, and of the environment only what agents need."""
        return RepoSettings(
            name=self.entry.name,
            path=self.entry.path,
            channel_id=self.channel_id,
            config=without_tokens(self.config),
            agent_env={name: env[name] for name in AGENT_VARIABLES if env.get(name)},
            skills_digest=self.entry.skills_digest,
        )


@dataclass(frozen=True)
class Unserved:
    """One that cannot be, and the line that says what to do about it."""

    entry: RepoEntry
    problem: str


@dataclass(frozen=True)
class RepoTable:
    """All registered repositories, read once; read anew to see changes."""

    served: tuple[Served, ...]
    unserved: tuple[Unserved, ...] = ()

    @classmethod
    def read(cls, home: Home, env: Mapping[str, str]) -> RepoTable:
        """One's fault keeps no other from being served. Raises ConfigError for a damaged registry."""
        served: list[Served] = []
        unserved: list[Unserved] = []
        for entry in Registry(home).load():
            try:
                resolved = resolve_repo(home, entry, env)
                _check_place(entry.name, resolved.config)
                served.append(Served(entry, resolved.config, resolved.notes, resolved.trusted))
            except ConfigError as error:
                unserved.append(Unserved(entry, str(error)))
        return cls(tuple(served), tuple(unserved))

    def keeping(self, earlier: RepoTable) -> RepoTable:
        """A repository that was served and is still registered stays so while its file cannot be read: an
        agent that breaks its own configuration takes nothing out of service."""
        broken = {each.entry.name: each for each in self.unserved}
        kept = [each for each in earlier.served if _same_place(each.entry, broken.get(each.entry.name))]
        return RepoTable((*self.served, *kept), self.unserved)

    def of_chats(self, chats: Collection[ChatName]) -> RepoTable:
        """Without the repositories of chats that this supervisor was started without."""
        served = [each for each in self.served if chat_of(each.channel_id) in chats]
        left_out = [
            Unserved(
                each.entry, f"{each.entry.name}: restart the supervisor to connect {chat_of(each.channel_id)}"
            )
            for each in self.served
            if each not in served
        ]
        return RepoTable(tuple(served), (*self.unserved, *left_out))

    def by_channel(self) -> dict[str, Repo]:
        """Channel ID to repository; with ``listenChannels`` set, only those channels."""
        return {each.channel_id: each.repo for each in self.served if not each.unheard}

    def channels(self) -> set[str]:
        """Every channel that a registered repository has, served or not."""
        configured = {each.channel_id for each in self.served}
        served = {each.entry.channel_id for each in self.served}
        unserved = {each.entry.channel_id for each in self.unserved}
        return (configured | served | unserved) - {""}

    @property
    def absent(self) -> tuple[Unserved, ...]:
        """Those that are not served, not even by an earlier configuration."""
        return tuple(each for each in self.unserved if self.named(each.entry.name) is None)

    def named(self, name: str) -> Served | None:
        """The served repository of that name."""
        return next((each for each in self.served if each.entry.name == name), None)

    def secrets(self, env: Mapping[str, str]) -> set[str]:
        """Every secret value in force, those an agent is given in its environment too, for the redactor."""
        found = {env[name] for name in SECRET_AGENT_VARIABLES if env.get(name)}
        for each in self.served:
            found |= secrets_of(each.config)
        return found


class Repos:
    """What is served now. ``direct`` are the direct conversations that are known, which may be about any of them."""

    def __init__(self, table: RepoTable, direct: Callable[[], Collection[str]]) -> None:
        self._direct = direct
        self.use(table)

    def use(self, table: RepoTable) -> None:
        """From now on that is served."""
        self.table = table
        self._by_channel = table.by_channel()

    def by_channel(self) -> Mapping[str, Repo]:
        """Channel ID to repository."""
        return self._by_channel

    def listened(self, chat: ChatName) -> dict[str, Repo]:
        """The same of one chat, with every direct conversation there."""
        everywhere = {**self._by_channel, **dict.fromkeys(self._direct(), Repo("direct messages", Config()))}
        return {channel: repo for channel, repo in everywhere.items() if chat_of(channel) == chat}

    def channels(self, table: RepoTable | None = None) -> set[str]:
        """Where we listen with ``table``: the repositories' channels and the direct conversations."""
        return (table or self.table).channels() | set(self._direct())

    def people(self) -> frozenset[str]:
        """Everybody who may talk to some repository."""
        return frozenset(user for served in self.table.served for user in served.config.allowed_users)

    def name_of(self, channel: str) -> str:
        """The repository of the channel; "" if there is none."""
        repo = self._by_channel.get(channel)
        return "" if repo is None else repo.name

    def path_of(self, name: str) -> Path | None:
        """Where a served repository is; None if it is not there."""
        served = self.table.named(name)
        return path if served is not None and (path := Path(served.entry.path)).is_dir() else None


def _check_place(name: str, config: Config) -> None:
    if not config.channel_id:
        raise ConfigError(f"{name}: it has no channel: run `codebutler add-repo` for it again")
    if (chat := chat_of(config.channel_id)) not in served_chats(config):
        raise ConfigError(f"{name}: there is no token for {chat}: run `codebutler setup`")


def _same_place(entry: RepoEntry, broken: Unserved | None) -> bool:
    return broken is not None and broken.entry.path == entry.path and Path(entry.path).is_dir()
