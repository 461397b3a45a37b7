"""What `codebutler doctor` says of whom agents run as: who that is, where his logins are, whether he gets there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from codebutler.config.git_repo import Owner, committer_env, unreachable_because
from codebutler.config.schema import RepoSettings
from codebutler.protocol.findings import Finding, fail, ok, warn
from codebutler_worker.sandbox.committing import NAMING
from codebutler_worker.sandbox.person import HOMES, home_of_agents, identity

NAME, EMAIL = "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"


def served_findings(walls: str, group: Sequence[RepoSettings], ours: Path) -> Iterator[Finding]:
    """Each once, for the repositories of ``group`` behind ``walls``; ``ours`` is our own home."""
    uid = os.geteuid()
    there = [Path(each.path) for each in group if each.path and Path(each.path).is_dir()]
    told = {identity(walls, uid, Owner.at(repo).uid, str(repo)) for repo in there}
    if not there:
        # Whoever will have one: root alone will not.
        told = {identity(walls, uid, uid or 1000)}
    for level, text in sorted(told):
        yield Finding(area="sandbox", subject="user", level=level, text=text)
    yield from _commits(there, ours)
    if uid == 0:
        theirs = [(repo, Owner.at(repo)) for repo in there if not Owner.at(repo).is_root]
        for repo, owner in theirs:
            if why := unreachable_because(repo, owner):
                yield fail("sandbox", "user", why)
        homes = {(home_of_agents(repo, ours), owner.uid) for repo, owner in theirs}
        yield from (_home(home, owner) for home, owner in sorted(homes))


def _commits(repos: Sequence[Path], ours: Path) -> Iterator[Finding]:
    envs = [(repo, committer_env(repo, home_of_agents(repo, ours))) for repo in repos]
    names = {f"{env[NAME]} <{env[EMAIL]}>" for _, env in envs if NAME in env and EMAIL in env}
    if names:
        yield ok("sandbox", "commits", f"commits are made as {', '.join(sorted(names))}")
    for repo in [repo for repo, env in envs if NAME not in env or EMAIL not in env]:
        yield warn("sandbox", "commits", f"git knows no name and e-mail address for {repo}: run {NAMING}")


def _home(home: Path, uid: int) -> Finding:
    if home.parent == HOMES:
        return warn(
            "sandbox",
            "home",
            f"user {uid} has no home, so agents have {home}, and root's logins are not theirs to read: "
            "log in as that user there, or set API keys, which never get into the sandbox",
        )
    return ok("sandbox", "home", f"agents' logins and sessions are those in {home}, as user {uid}")
