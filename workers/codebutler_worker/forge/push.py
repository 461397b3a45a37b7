"""Pushes the commits of a conversation's checkout to the remote, and opens the thread's pull request.

The checkout is read only inside the sandbox. What comes out is a commit ID, a branch name and a pack: data, and all
of it is checked here.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from msgspec import Struct

from codebutler.config.schema import RepoSettings
from codebutler.platform.backups import directory_name
from codebutler.text.wording import one_line
from codebutler_worker.forge.api import GhApi, Pull, Service, TokenApi
from codebutler_worker.forge.github import GitHub
from codebutler_worker.forge.gitlab import GitLab
from codebutler_worker.forge.outbound import Outbound
from codebutler_worker.forge.remote import (
    ForgeError,
    Host,
    Remote,
    configured_url,
    is_branch_name,
    is_protected,
    validate_remote,
)
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import CHECKS, talks, thread_url, words_of
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.tree import COMMIT_ID, Git
from codebutler_worker.tree.worktrees import begun, names_of

PACK_S = 900.0
TIP = """
export GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null
branch=$1
if [ -n "$branch" ]; then commit=$(git rev-parse -q --verify "refs/heads/$branch^{commit}")
else branch=$(git symbolic-ref -q HEAD); commit=$(git rev-parse -q --verify 'HEAD^{commit}'); fi
printf '%s\\n%s\\n' "$commit" "$branch"
git status --porcelain --ignore-submodules=all -- . ':(exclude,top).codebutler' | wc -l
"""
"""Argument: the branch, "" = the one checked out. Prints its commit, its name and the number of uncommitted files."""
PACK = """
exec 2>/dev/null
export GIT_NO_REPLACE_OBJECTS=1 GIT_GRAFT_FILE=/dev/null
commit=$1; shift
{ echo "$commit"; for known in "$@"; do git cat-file -e "$known^{commit}" && echo "^$known"; done; } |
  git pack-objects --revs --stdout -q --delta-base-offset
"""
"""Arguments: a commit, and the known commits. Prints a pack of what is missing."""
NOTHING = "there is no commit here yet: commit something first"
NOTHING_NEW = "there is nothing to push: `{base}` on the remote already has every commit"
UNCOMMITTED = " ({files} not committed: ask the agent to commit)"
PROTECTED = "`{branch}` is protected: CodeButler never pushes to it"
ODD_NAME = "the checked-out branch has a name that cannot be pushed: rename it"
RUNS_DESCRIBED = 10
PROMPT_CHARS = 500
ANSWER_CHARS = 1_500
STAT_CHARS = 4_000
TITLE_CHARS = 100
NOT_SENT = (
    "`forge.token` is not sent to {host}, which only the repository's own configuration names: set `forge.apiUrl` "
    "or `git.remote`"
)
_MARKS = re.compile(r"[\\`*_{}\[\]<>#|~]")


class Tip(Struct, frozen=True):
    """The state of the checkout: ``branch`` is "" if none is checked out; ``uncommitted`` counts files not in the
    commit."""

    commit: str
    branch: str
    uncommitted: int


class PushResult(Struct, frozen=True):
    """The result of a push. ``commits`` are (short ID, subject) of the branch since ``base``, the remote's default
    branch; ``link``: the page to open a pull request, "" = unknown. ``was_there``: there was nothing to send."""

    remote: Remote
    branch: str
    commit: str
    base: str
    commits: tuple[tuple[str, str], ...]
    stat: str
    link: str
    was_there: bool = False


async def tip_of(runtime: Runtime, conversation: str) -> Tip:
    """What is committed there now. Raises CodeButlerError."""
    worktree = await asyncio.to_thread(begun, Path(runtime.settings.path), conversation)
    git = await _git(runtime, conversation)
    status = await git.run(TIP, worktree.branch if worktree else "")
    commit, branch, files = [*status.output.decode(errors="replace").split("\n"), "", ""][:3]
    if not COMMIT_ID.fullmatch(commit):
        raise ForgeError(NOTHING)
    branch = branch.removeprefix("refs/heads/")
    if branch and not is_branch_name(branch):
        raise ForgeError(ODD_NAME)
    runtime.pushed.add(commit)
    return Tip(commit, branch, int(files) if files.strip().isdecimal() else 0)


async def push(
    runtime: Runtime, conversation: str, tip: Tip, task: str, *, force: bool = False
) -> PushResult:
    """Push ``tip``. Commits on a protected branch, or on none, go to a branch named after ``task``. Idempotent.
    Raises CodeButlerError."""
    remote = await asyncio.to_thread(remote_of, runtime)
    settings, repo = runtime.settings, Path(runtime.settings.path)
    directory = runtime.home.pushes / directory_name(settings.name, repo)
    outbound = Outbound(directory, remote, Host(repo, settings.agent_env))
    await outbound.prepare(tip.commit)
    # Our own patterns first, then the remote, whose default branch may have any name.
    if not await outbound.has(tip.commit):
        await _import_commits(await _git(runtime, conversation), outbound, tip)
    branch, own = tip.branch, names_of(conversation, task)[0]
    protected = settings.config.git.protected
    if not branch or is_protected(branch, protected):
        branch = own
    state = await outbound.fetch_state(branch)
    if is_protected(branch, (), state.default):
        branch = own
        state = await outbound.fetch_state(branch)
    if is_protected(branch, protected, state.default):
        raise ForgeError(PROTECTED.format(branch=branch))
    commits = await outbound.commits(tip.commit, state.default_tip)
    if not commits and not state.tip:
        files = UNCOMMITTED.format(files=_files(tip.uncommitted)) if tip.uncommitted else ""
        raise ForgeError(NOTHING_NEW.format(base=state.default) + files)
    link = ""
    if was_there := state.tip == tip.commit:
        await outbound.record_pushed(tip.commit, branch)
    else:
        link = await outbound.push(tip.commit, branch, state.tip, force=force)
    stat = await outbound.stat(tip.commit, state.default_tip)
    return PushResult(
        remote,
        branch,
        tip.commit,
        state.default,
        tuple(commits),
        stat,
        link or remote.page_for(branch, state.default),
        was_there,
    )


def remote_of(runtime: Runtime) -> Remote:
    """Where the repository pushes to. Raises ForgeError. Blocking."""
    repo, section = Path(runtime.settings.path), runtime.settings.config.git
    return validate_remote(section.remote or configured_url(repo), repo, section.local_remotes)


async def _import_commits(git: Git, outbound: Outbound, tip: Tip) -> None:
    known = await outbound.known_commits()
    pack = await asyncio.to_thread(outbound.pack)
    try:
        await git.run(PACK, tip.commit, *known, limit_bytes=None, record=pack.write, limit_s=PACK_S)
    except BaseException:
        pack.path.unlink(missing_ok=True)
        raise
    finally:
        pack.close()
    await outbound.import_pack(pack, tip.commit)


async def _git(runtime: Runtime, conversation: str) -> Git:
    return (await runtime.agents.tree(await runtime.agents.workdir(conversation))).git


def _files(number: int) -> str:
    return "1 file is" if number == 1 else f"{number} files are"


class OpenedPull(Struct, frozen=True):
    """A pull request; ``is_new``: it did not exist before."""

    pull: Pull
    is_new: bool


def service_of(settings: RepoSettings, remote: Remote, place: Path) -> Service | None:
    """The service behind the remote; None if it is unknown or nobody is logged in there. Raises ForgeError if the
    token would go to a host that only the repository names."""
    section, env = settings.config.forge, settings.agent_env
    host = Host(Path(settings.path), env)
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
        default_url = (
            "https://api.github.com" if remote.web == "github.com" else f"https://{remote.web}/api/v3"
        )
        headers = {"Authorization": f"Bearer {section.token}", "Accept": "application/vnd.github+json"}
        return GitHub(TokenApi(section.api_url or default_url, headers, env), remote.path)
    return GitHub(GhApi(host, remote.web, place), remote.path) if host.has("gh") else None


def _is_configured(settings: RepoSettings, remote: Remote) -> bool:
    """Whether the configuration names the remote's host now: it may have named another when a pull request was opened.
    Raises ForgeError."""
    git = settings.config.git
    if not git.remote:
        return False
    return validate_remote(git.remote, Path(settings.path), git.local_remotes).web == remote.web


async def open_pull(
    runtime: Runtime, service: Service, pushed: PushResult, title: str, body: str
) -> OpenedPull:
    """The pull request of the pushed branch: opened if there is none, otherwise its description is updated. Raises
    ForgeError."""
    description = runtime.redactor.redact(body)
    if (found := await service.find(pushed.branch)) is not None:
        await service.describe(found.number, description)
        return OpenedPull(found, is_new=False)
    pull = await service.open(pushed.branch, pushed.base, runtime.redactor.redact(title), description)
    return OpenedPull(pull, is_new=True)


def title_of(requested: str, pushed: PushResult, task: str) -> str:
    """Its title: as requested, or from its only commit, the thread's task, or its newest commit."""
    only = pushed.commits[0][1] if len(pushed.commits) == 1 else ""
    newest = pushed.commits[-1][1] if pushed.commits else pushed.branch
    return one_line(requested or only or task or newest, TITLE_CHARS)


def body_of(uow: UnitOfWork, settings: RepoSettings, conversation: str, pushed: PushResult) -> str:
    """The thread's prompts and answers, its checks, and what changed, as Markdown for the service."""
    turns = uow.turns.find(newest=RUNS_DESCRIBED, conversation=conversation)[::-1]
    parts = _run_texts(uow, settings, turns) if settings.config.forge.describe else []
    if (checks := next((turn for turn in reversed(turns) if turn.agent == CHECKS), None)) is not None:
        parts.append(f"**Checks** run by CodeButler: {'passed' if checks.state == 'done' else checks.state}")
    if pushed.stat:
        parts.append(f"```text\n{_clip_to_lines(pushed.stat.replace('```', ''), STAT_CHARS)}\n```")
    thread_link = thread_url(turns[0]) if turns else ""
    parts.append(
        f"<sub>Opened by CodeButler{f' from [this thread]({thread_link})' if thread_link else ''}.</sub>"
    )
    return "\n\n".join(parts)


def _run_texts(uow: UnitOfWork, settings: RepoSettings, turns: list[TurnRow]) -> list[str]:
    agent_turns = [turn for turn in turns if talks(settings.config, turn.agent)]
    parts = [f"> {escape_markdown(words_of(uow, turn, PROMPT_CHARS))}" for turn in agent_turns]
    answers = [turn.result for turn in agent_turns if turn.state == "done" and turn.result]
    if answers:
        parts.append(without_mentions(_clip_to_lines(answers[-1], ANSWER_CHARS)))
    return parts


def _clip_to_lines(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit].rpartition(chr(10))[0] or text[:limit]}\n…"


def escape_markdown(text: str) -> str:
    """Somebody's text, shown literally at the service."""
    return without_mentions(_MARKS.sub(lambda found: f"\\{found[0]}", text))


def without_mentions(text: str) -> str:
    """Markdown that notifies nobody there: no ``@name`` in it is a mention."""
    return text.replace("@", "@\u200b")
