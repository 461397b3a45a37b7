"""The remote: where a push may go, and the owner's programs that reach it, git and gh.

The URL and the branch are named by a repository that may be hostile. Git never reads that repository's configuration on
the host: its remote's URL is read as text and validated. The programs run outside the sandbox, with the owner's
credentials: never in a repository that agents write to, and they never come from one.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from msgspec import Struct

from codebutler.config.git_repo import BOUNDED, BOUNDED_PINS, address_in
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import AgentUnavailableError, CodeButlerError
from codebutler.platform.lookup import look_up, path_of, trusted_path
from codebutler_worker.sandbox.destinations import read_regular
from codebutler_worker.sandbox.gitconfig import CONFIG_BYTES, MalformedConfigError, settings
from codebutler_worker.sandbox.port import Launch
from codebutler_worker.sandbox.process import EndedProgram, run_to_end

# git-check-ref-format(1)
_NOT_IN_A_NAME = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|^[-+/]|/$|\.$|(^|/)\.|^refs/|^(HEAD|@)$"
)
NAME_BYTES = 200
NO_REMOTE = "this repository has no remote called `origin`: run `git remote add origin URL` in it, or set `git.remote`"
REFUSED = (
    "pushing to {shown} is not possible: set an https:// or ssh address (`git remote set-url origin URL`)"
)
LOCAL = "{shown} is a directory on this machine: add it, or a parent directory, to `git.localRemotes` to push to it"

OUTPUT_BYTES = 8 * 2**20
SCOPES = ("--system", "--global")
"""The configuration of the user we run as."""
INSIDE = "{path}, which your git configuration names, is in the repository, where agents may write: move it elsewhere"
PINS = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.followTags", "false"),
    ("protocol.ext.allow", "never"),
    *BOUNDED_PINS,
)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class ForgeError(CodeButlerError):
    """The remote, or the service behind it, refused or failed; one line without secrets."""


class Remote(Struct, frozen=True):
    """A validated URL. ``host`` (with its port) is "" for a directory; ``path`` has no leading slash and no
    ``.git``."""

    url: str
    kind: Literal["https", "ssh", "file"]
    host: str
    path: str

    @property
    def shown(self) -> str:
        """The URL for display: without user name and password."""
        return f"{self.host}/{self.path}" if self.host else self.url

    @property
    def web(self) -> str:
        """The host of the repository's web pages: the same, without the port of another protocol."""
        return self.host if self.kind == "https" else self.host.partition(":")[0]

    def page_for(self, branch: str, base: str) -> str:
        """The service's page to open a pull request; "" if unknown."""
        if not self.host or not base:
            return ""
        place, source, target = f"https://{self.web}/{quote(self.path)}", quote(branch), quote(base, safe="")
        if "gitlab" in self.host:
            branches = f"merge_request[source_branch]={quote(branch, safe='')}"
            return f"{place}/-/merge_requests/new?{branches}&merge_request[target_branch]={target}"
        return f"{place}/compare/{target}...{source}?expand=1" if self.web == "github.com" else ""


def validate_remote(url: str, repo: Path, local: Iterable[str]) -> Remote:
    """``url`` as a URL to push to; ``local``: directories that may hold remotes on this machine, never in ``repo``
    itself. Raises ForgeError."""
    if (found := address_in(url)) is not None:
        return Remote(url, found.kind, found.host, found.path)
    if url.startswith("/") and url.isprintable():
        return _directory(url, repo, local)
    raise ForgeError(REFUSED.format(shown=_display_url(url)))


def _directory(url: str, repo: Path, local: Iterable[str]) -> Remote:
    real, checkout = Path(url).resolve(), repo.resolve()
    allowed = [Path(each).expanduser().resolve() for each in local]
    inside = real.is_relative_to(checkout) or checkout.is_relative_to(real)
    if inside or not any(real.is_relative_to(each) for each in allowed):
        raise ForgeError(LOCAL.format(shown=_display_url(url)))
    return Remote(str(real), "file", "", real.name.removesuffix(".git"))


def _display_url(url: str) -> str:
    """A refused URL for an error: short, on one line, without user name and password."""
    text = re.sub(r"(?<=://)[^/@\s]*@", "", url)
    return "".join(each if each.isprintable() else "?" for each in text[:100]) or "nothing"


def configured_url(repo: Path) -> str:
    """The push URL in the repository's own configuration: ``origin``, otherwise its only remote. Includes and other
    settings are ignored. Raises ForgeError. Blocking."""
    try:
        text = read_regular(repo, ".git/config", CONFIG_BYTES).decode(errors="replace")
        remotes = _remotes(settings(text))
    except OSError:
        raise ForgeError(NO_REMOTE) from None
    except MalformedConfigError as error:
        raise ForgeError(f"git cannot read {repo}/.git/config: {error}") from error
    name = "origin" if "origin" in remotes or len(remotes) != 1 else next(iter(remotes))
    addresses = remotes.get(name, {})
    urls = addresses.get("pushurl") or addresses.get("url") or []
    if not urls:
        raise ForgeError(NO_REMOTE)
    if len(urls) > 1:
        raise ForgeError(f"the remote `{name}` has several addresses: set `git.remote` to the one to use")
    return urls[0]


def has_remote(settings: RepoSettings) -> bool:
    """Whether a remote is configured at all; it may still be one that is refused. Blocking."""
    if settings.config.git.remote:
        return True
    try:
        return bool(configured_url(Path(settings.path)))
    except ForgeError as error:
        return str(error) != NO_REMOTE


def _remotes(entries: Iterable[tuple[str, str]]) -> dict[str, dict[str, list[str]]]:
    remotes: dict[str, dict[str, list[str]]] = {}
    for key, value in entries:
        section, _, last = key.rpartition(".")
        if section.startswith("remote.") and last in ("url", "pushurl") and value:
            remotes.setdefault(section.removeprefix("remote."), {}).setdefault(last, []).append(value)
    return remotes


def is_branch_name(name: str) -> bool:
    """Whether git accepts it as a branch name and it cannot be mistaken for anything else."""
    return (
        0 < len(name.encode(errors="replace")) <= NAME_BYTES
        and name.isprintable()
        and _NOT_IN_A_NAME.search(name) is None
    )


def is_protected(branch: str, patterns: Iterable[str], default: str = "") -> bool:
    """Whether pushes to it are refused: the remote's ``default`` branch, and whatever matches the ``patterns``.
    Ignores case, as some servers' file systems do."""
    name = _fold(branch)
    return name == _fold(default) or any(fnmatchcase(name, _fold(each)) for each in patterns)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


class Host(Struct, frozen=True):
    """Programs outside ``repo``. ``agent_env``: the agents' part of the environment; its PATH and proxies apply here
    too."""

    repo: Path
    agent_env: Mapping[str, str]

    def has(self, program: str) -> bool:
        """Whether it is installed."""
        return look_up(program, path_of(self.agent_env), self.repo) is not None

    async def run(
        self, program: str, *words: str, env: Mapping[str, str], cwd: Path, limit_s: float, stdin: bytes = b""
    ) -> EndedProgram | None:
        """Run it to the end in the owner's environment plus ``env``; None if it is not installed. Raises
        ForgeError."""
        found = look_up(program, path_of(self.agent_env), self.repo)
        if found is None:
            return None
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own |= {name: value for name, value in self.agent_env.items() if name in PROXIES}
        own["PATH"] = trusted_path(path_of(self.agent_env), self.repo)
        try:
            launch = Launch((str(found), *words), {**own, **env}, cwd)
            return await run_to_end(launch, stdin=stdin, limit_bytes=OUTPUT_BYTES, limit_s=limit_s)
        except AgentUnavailableError as error:
            raise ForgeError(str(error)) from error

    async def git(self, *words: str, env: Mapping[str, str], cwd: Path, limit_s: float) -> EndedProgram:
        """The same for git. Raises ForgeError if it is not installed."""
        ended = await self.run("git", *words, env=env, cwd=cwd, limit_s=limit_s)
        if ended is None:
            raise ForgeError("git is not installed on this machine: install it")
        return ended

    async def refuse_repo_config(self, env: Mapping[str, str], limit_s: float) -> None:
        """Raises ForgeError if git would read configuration from the repository: the owner's may include some."""
        for scope in SCOPES:
            words = ("config", scope, "--includes", "--list", "-z", "--show-origin")
            if (ended := await self.run("git", *words, env=env, cwd=Path("/"), limit_s=limit_s)) is not None:
                parse_settings(self.repo, ended.output)


def git_environment(directory: Path, *extra: tuple[str, str]) -> dict[str, str]:
    """Variables added to the owner's environment, for git in a repository of ours: with settings that count more than
    the owner's, and nothing that asks for a password, which nobody would see."""
    env = {
        "LC_ALL": "C",
        "GIT_DIR": str(directory),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "SSH_ASKPASS_REQUIRE": "never",
        **BOUNDED,
        "GIT_CONFIG_COUNT": str(len(PINS) + len(extra)),
    }
    for at, (key, value) in enumerate((*PINS, *extra)):
        env |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return env


def parse_settings(repo: Path, output: bytes) -> list[tuple[str, str]]:
    """(key, value) from what `git config -z --show-origin` prints. Raises ForgeError if any of it is from ``repo``."""
    entries = []
    parts = os.fsdecode(output).split("\0")[:-1]
    for origin, entry in zip(parts[::2], parts[1::2], strict=False):
        refuse_inside(repo, origin.removeprefix("file:"))
        key, newline, value = entry.partition("\n")
        entries.append((key, value if newline else "true"))
    return entries


def refuse_inside(repo: Path, path: str) -> None:
    """Raises ForgeError if a file that the owner's git would use is in the repository."""
    place, checkout = Path(path).expanduser(), (repo, repo.resolve())
    inside = [
        each for each in (place, place.resolve()) if any(each.is_relative_to(root) for root in checkout)
    ]
    if place.is_absolute() and inside:
        raise ForgeError(INSIDE.format(path=path))
