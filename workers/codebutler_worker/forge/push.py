"""Pushes the commits of a conversation's checkout to the remote.

The checkout is read only inside the sandbox. What comes out is a commit ID, a branch name and a pack: data, and all
of it is checked here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from codebutler.platform.backups import directory_name
from codebutler_worker.forge.host import Host
from codebutler_worker.forge.outbound import COMMIT, Outbound
from codebutler_worker.forge.remote import (
    ForgeError,
    Remote,
    configured_url,
    is_branch_name,
    is_protected,
    judged,
)
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.tree.branches import names_of
from codebutler_worker.tree.tree import Git
from codebutler_worker.tree.worktrees import begun

PACK_S = 900.0
NO_COMMIT = 10
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
NOTHING_NEW = "there is nothing to push: no commit here is missing from `{base}` on the remote"
UNCOMMITTED = " ({files} not committed: ask the agent to commit)"
PROTECTED = "`{branch}` is protected: it is never pushed to from here"
ODD_NAME = "the branch that is checked out has a name that is not pushed: rename it"


@dataclass(frozen=True, slots=True)
class Tip:
    """The state of the checkout: ``branch`` is "" if none is checked out; ``uncommitted`` counts files not in the
    commit."""

    commit: str
    branch: str
    uncommitted: int


@dataclass(frozen=True, slots=True)
class Pushed:
    """``commits`` are (short ID, subject) of the branch since ``base``, the remote's default branch; ``link``: the
    page to open a pull request, "" = unknown. ``was_there``: there was nothing to send."""

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
    known = await asyncio.to_thread(begun, Path(runtime.settings.path), conversation)
    git = await _git(runtime, conversation)
    said = await git.run(TIP, known.branch if known else "")
    commit, branch, files = [*said.output.decode(errors="replace").split("\n"), "", ""][:3]
    if not COMMIT.fullmatch(commit):
        raise ForgeError(NOTHING)
    branch = branch.removeprefix("refs/heads/")
    if branch and not is_branch_name(branch):
        raise ForgeError(ODD_NAME)
    runtime.pushed.add(commit)
    return Tip(commit, branch, int(files) if files.strip().isdecimal() else 0)


async def push(runtime: Runtime, conversation: str, tip: Tip, task: str, *, force: bool = False) -> Pushed:
    """Push ``tip``. Commits on a protected branch, or on none, go to a branch named after ``task``. Idempotent.
    Raises CodeButlerError."""
    remote = await asyncio.to_thread(remote_of, runtime)
    settings, repo = runtime.settings, Path(runtime.settings.path)
    place = runtime.home.pushes / directory_name(settings.name, repo)
    outbound = Outbound(place, remote, Host(repo, settings.agent_env))
    await outbound.prepare(tip.commit)
    # Our own patterns first, then the remote, whose default branch may have any name.
    if not await outbound.has(tip.commit):
        await _bring(await _git(runtime, conversation), outbound, tip)
    branch, own = tip.branch, names_of(conversation, task)[0]
    protected = settings.config.git.protected
    if not branch or is_protected(branch, protected):
        branch = own
    state = await outbound.look(branch)
    if is_protected(branch, (), state.default):
        branch = own
        state = await outbound.look(branch)
    if is_protected(branch, protected, state.default):
        raise ForgeError(PROTECTED.format(branch=branch))
    commits = await outbound.commits(tip.commit, state.default_tip)
    if not commits and not state.tip:
        files = UNCOMMITTED.format(files=_files(tip.uncommitted)) if tip.uncommitted else ""
        raise ForgeError(NOTHING_NEW.format(base=state.default) + files)
    link = ""
    if was_there := state.tip == tip.commit:
        await outbound.is_there(tip.commit, branch)
    else:
        link = await outbound.push(tip.commit, branch, state.tip, force=force)
    stat = await outbound.stat(tip.commit, state.default_tip)
    return Pushed(
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
    return judged(section.remote or configured_url(repo), repo, section.local_remotes)


async def _bring(git: Git, outbound: Outbound, tip: Tip) -> None:
    known = await outbound.known()
    pack = await asyncio.to_thread(outbound.pack)
    try:
        await git.stream(PACK, tip.commit, *known, record=pack.write, limit_s=PACK_S)
    except BaseException:
        pack.path.unlink(missing_ok=True)
        raise
    finally:
        pack.close()
    await outbound.take(pack, tip.commit)


async def _git(runtime: Runtime, conversation: str) -> Git:
    return (await runtime.agents.tree(await runtime.agents.workdir(conversation))).git


def _files(number: int) -> str:
    return "1 file is" if number == 1 else f"{number} files are"
