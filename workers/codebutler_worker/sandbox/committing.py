"""Commits behind walls: who makes them, and what to do where the walls keep git from changing something."""

from __future__ import annotations

import re
from dataclasses import replace

from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy

NAMING = '`git config --global user.name "NAME"` and `git config --global user.email ADDRESS`'
TOLD = (
    "Git in this sandbox: you can commit, branch and merge. The repository's configuration and its list of worktrees "
    "are read-only, so `git config`, `git remote add`, `git branch -u` and `git worktree add` fail: for one command "
    "use `git -c KEY=VALUE`, for a second checkout `git clone . /tmp/NAME`, and ask the owner for a lasting change. "
    "`.codebutler` shows only what git tracks of it, and keeps nothing but what you put into `.codebutler/files`. If "
    f"git asks who you are, do not invent a name: ask the owner to run {NAMING} on the machine that runs CodeButler."
)
"""For agents that a model steers."""
# What the walls' refusals look like: mounts, and seatbelt's rules (errno(3)).
_REFUSED = "(Device or resource busy|Read-only file system|Operation not permitted)"
_HINTS = (
    (
        re.compile("Please tell me who you are|empty ident name"),
        f"Git does not know whose commit this is. On the machine that runs CodeButler, run {NAMING}, then try again.",
    ),
    (
        re.compile(f"could not (write|lock) config file .*: {_REFUSED}"),
        "The sandbox keeps git's configuration read-only. For one command use `git -c KEY=VALUE …`; for a lasting "
        "change run this on the machine that runs CodeButler, outside the sandbox.",
    ),
    (
        re.compile(f"could not create directory of '.*worktrees/.*': {_REFUSED}"),
        "The sandbox does not let git add worktrees. Clone instead (`git clone . /tmp/NAME`), or set `agent.isolation` "
        'to "worktree", which gives each thread its own.',
    ),
)


def hint(output: str) -> str:
    """What to do about a failure of git that the walls cause, or a missing name; "" for all other output. Pure."""
    return next((advice for failure, advice in _HINTS if failure.search(output)), "")


class CommittingSandbox:
    """Another sandbox, in which git knows whose commits are made. ``committer`` is the environment that says so; a
    policy's own goes before it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.name = sandbox.name
        self.committer: dict[str, str] = {}
        self._sandbox = sandbox

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """See the port."""
        return self._sandbox.wrap(argv, replace(policy, env={**self.committer, **policy.env}))

    async def self_test(self) -> None:
        """See the port."""
        await self._sandbox.self_test()
