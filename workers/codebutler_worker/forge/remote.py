"""Where a push may go: the URL and the branch, both named by a repository that may be hostile. Git never reads that
repository's configuration on the host: its remote's URL is read as text and validated."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from codebutler.config.git_repo import address_in
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler_worker.sandbox.destinations import read_regular
from codebutler_worker.sandbox.gitconfig import CONFIG_BYTES, MalformedConfigError, settings

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


class ForgeError(CodeButlerError):
    """The remote, or the service behind it, refused or failed; one line without secrets."""


@dataclass(frozen=True, slots=True)
class Remote:
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


def judged(url: str, repo: Path, local: Iterable[str]) -> Remote:
    """``url`` as a URL to push to; ``local``: directories that may hold remotes on this machine, never in ``repo``
    itself. Raises ForgeError."""
    if (found := address_in(url)) is not None:
        return Remote(url, found.kind, found.host, found.path)
    if url.startswith("/") and url.isprintable():
        return _directory(url, repo, local)
    raise ForgeError(REFUSED.format(shown=_harmless(url)))


def _directory(url: str, repo: Path, local: Iterable[str]) -> Remote:
    real, checkout = Path(url).resolve(), repo.resolve()
    allowed = [Path(each).expanduser().resolve() for each in local]
    inside = real.is_relative_to(checkout) or checkout.is_relative_to(real)
    if inside or not any(real.is_relative_to(each) for each in allowed):
        raise ForgeError(LOCAL.format(shown=_harmless(url)))
    return Remote(str(real), "file", "", real.name.removesuffix(".git"))


def _harmless(url: str) -> str:
    """A refused URL for an error: short, on one line, without user name and password."""
    shown = re.sub(r"(?<=://)[^/@\s]*@", "", url)
    return "".join(each if each.isprintable() else "?" for each in shown[:100]) or "nothing"


def configured_url(repo: Path) -> str:
    """The push URL in the repository's own configuration: ``origin``, otherwise its only remote. Includes and other
    settings are ignored. Raises ForgeError. Blocking."""
    try:
        text = read_regular(repo, ".git/config", CONFIG_BYTES).decode(errors="replace")
        found = _remotes(settings(text))
    except OSError:
        raise ForgeError(NO_REMOTE) from None
    except MalformedConfigError as error:
        raise ForgeError(f"git cannot read {repo}/.git/config: {error}") from error
    name = "origin" if "origin" in found or len(found) != 1 else next(iter(found))
    said = found.get(name, {})
    urls = said.get("pushurl") or said.get("url") or []
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


def _remotes(found: Iterable[tuple[str, str]]) -> dict[str, dict[str, list[str]]]:
    remotes: dict[str, dict[str, list[str]]] = {}
    for key, value in found:
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
    name = _folded(branch)
    return name == _folded(default) or any(fnmatchcase(name, _folded(each)) for each in patterns)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
