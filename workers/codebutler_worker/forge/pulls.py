"""A thread's pull request: opened once, with a description of the thread's runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.schema import RepoSettings
from codebutler_worker.forge.api import GhApi, TokenApi
from codebutler_worker.forge.github import GitHub
from codebutler_worker.forge.gitlab import GitLab
from codebutler_worker.forge.host import Host
from codebutler_worker.forge.push import Pushed
from codebutler_worker.forge.remote import ForgeError, Remote, judged
from codebutler_worker.forge.service import Pull, Service
from codebutler_worker.present.lines import one_line
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import CHECKS, talks, thread_url, words_of
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork

RUNS_TOLD = 10
ASKED_CHARS = 500
ANSWER_CHARS = 1_500
STAT_CHARS = 4_000
TITLE_CHARS = 100
NOT_SENT = (
    "`forge.token` is not sent to {host}, which only the repository's own configuration names: set `forge.apiUrl` "
    "or `git.remote`"
)
_MARKS = re.compile(r"[\\`*_{}\[\]<>#|~]")


@dataclass(frozen=True, slots=True)
class Opened:
    """``is_new``: it did not exist before."""

    pull: Pull
    is_new: bool


def service_of(settings: RepoSettings, remote: Remote, place: Path) -> Service | None:
    """The service behind the remote; None if it is unknown or nobody is logged in there. Raises ForgeError if the
    token would go to a host that only the repository names."""
    section, host, env = (
        settings.config.forge,
        Host(Path(settings.path), settings.agent_env),
        settings.agent_env,
    )
    is_github = section.kind == "github" or (section.kind == "auto" and "github" in remote.web)
    if not remote.host or not (is_github or section.kind == "gitlab"):
        return None
    if section.token and not (
        section.api_url
        or _is_configured(settings, remote)
        or remote.web == f"{'github' if is_github else 'gitlab'}.com"
    ):
        raise ForgeError(NOT_SENT.format(host=remote.web))
    if not is_github:
        headers = {"PRIVATE-TOKEN": section.token}
        url = section.api_url or f"https://{remote.web}/api/v4"
        return GitLab(TokenApi(url, headers, env), remote.path) if section.token else None
    if section.token:
        usual = "https://api.github.com" if remote.web == "github.com" else f"https://{remote.web}/api/v3"
        headers = {"Authorization": f"Bearer {section.token}", "Accept": "application/vnd.github+json"}
        return GitHub(TokenApi(section.api_url or usual, headers, env), remote.path)
    return GitHub(GhApi(host, remote.web, place), remote.path) if host.has("gh") else None


def _is_configured(settings: RepoSettings, remote: Remote) -> bool:
    """Whether the configuration names the remote's host now: it may have named another when a pull request was opened.
    Raises ForgeError."""
    section = settings.config.git
    named = judged(section.remote, Path(settings.path), section.local_remotes) if section.remote else None
    return named is not None and named.web == remote.web


async def open_pull(runtime: Runtime, service: Service, pushed: Pushed, title: str, body: str) -> Opened:
    """The pull request of the pushed branch: opened if there is none, otherwise its description is updated. Raises
    ForgeError."""
    said = runtime.redactor.redact(body)
    if (found := await service.find(pushed.branch)) is not None:
        await service.describe(found.number, said)
        return Opened(found, is_new=False)
    pull = await service.open(pushed.branch, pushed.base, runtime.redactor.redact(title), said)
    return Opened(pull, is_new=True)


def title_of(asked: str, pushed: Pushed, task: str) -> str:
    """Its title: as requested, or from its only commit, the thread's task, or its newest commit."""
    only = pushed.commits[0][1] if len(pushed.commits) == 1 else ""
    newest = pushed.commits[-1][1] if pushed.commits else pushed.branch
    return one_line(asked or only or task or newest, TITLE_CHARS)


def body_of(uow: UnitOfWork, settings: RepoSettings, conversation: str, pushed: Pushed) -> str:
    """The thread's prompts and answers, its checks, and what changed, as Markdown for the service."""
    turns = uow.turns.newest(RUNS_TOLD, conversation)[::-1]
    parts = _runs(uow, settings, turns) if settings.config.forge.describe else []
    if (checks := next((turn for turn in reversed(turns) if turn.agent == CHECKS), None)) is not None:
        parts.append(f"**Checks** run by CodeButler: {'passed' if checks.state == 'done' else checks.state}")
    if pushed.stat:
        parts.append(f"```text\n{_whole_lines(pushed.stat.replace('```', ''), STAT_CHARS)}\n```")
    whence = thread_url(turns[0]) if turns else ""
    parts.append(f"<sub>Opened by CodeButler{f' from [this thread]({whence})' if whence else ''}.</sub>")
    return "\n\n".join(parts)


def _runs(uow: UnitOfWork, settings: RepoSettings, turns: list[TurnRow]) -> list[str]:
    spoken = [turn for turn in turns if talks(settings.config, turn.agent)]
    parts = [f"> {quoted(words_of(uow, turn, ASKED_CHARS))}" for turn in spoken]
    answers = [turn.result for turn in spoken if turn.state == "done" and turn.result]
    if answers:
        parts.append(harmless(_whole_lines(answers[-1], ANSWER_CHARS)))
    return parts


def _whole_lines(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rpartition(chr(10))[0] or text[:limit]}\n…"


def quoted(text: str) -> str:
    """Somebody's text, shown literally at the service."""
    return harmless(_MARKS.sub(lambda found: f"\\{found[0]}", text))


def harmless(text: str) -> str:
    """Markdown that notifies nobody there: no ``@name`` in it is a mention."""
    return text.replace("@", "@\u200b")
