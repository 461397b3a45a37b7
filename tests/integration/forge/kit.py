"""A repository with a bare remote, and a person who pushes from its channel."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from codebutler.config.schema import ForgeSection, GitSection, RepoSettings
from codebutler.domain.model import Command
from tests.events import posted
from tests.forgeserver.github import TOKEN, GitHubServer
from tests.worker_kit import CHANNEL, USER, Parent, settings

IDENTITY = ("-c", "user.name=Ana", "-c", "user.email=ana@example.org", "-c", "safe.directory=*")


def git(where: Path, *words: str, check: bool = True) -> str:
    """What a person's git prints there."""
    found = subprocess.run(
        ["git", *IDENTITY, *words], cwd=where, check=check, capture_output=True, text=True, env={**os.environ}
    )
    return found.stdout.strip()


@dataclass(frozen=True)
class Desk:
    """``repo`` was cloned from ``remote``, which has ``main`` with one commit."""

    repo: Path
    remote: Path

    def commit(
        self, name: str = "app.py", text: str = "print('changed')\n", subject: str = "Change it"
    ) -> str:
        """Write a file and commit it; returns the commit."""
        (self.repo / name).write_text(text)
        git(self.repo, "add", name)
        git(self.repo, "commit", "-qm", subject)
        return git(self.repo, "rev-parse", "HEAD")

    def at(self, branch: str) -> str:
        """Where the remote's branch is, "" if there is none."""
        return git(self.remote, "rev-parse", "-q", "--verify", f"refs/heads/{branch}", check=False)

    @property
    def branches(self) -> set[str]:
        return set(git(self.remote, "for-each-ref", "--format=%(refname:short)").split())

    def settings(self, *, git_section: GitSection | None = None, **more: Any) -> RepoSettings:
        """Its settings; pushing to the remote's directory is allowed."""
        base = settings(self.repo, **more)
        section = git_section or GitSection(local_remotes=(str(self.remote.parent),))
        return msgspec.structs.replace(base, config=msgspec.structs.replace(base.config, git=section))


def desk_at(place: Path) -> Desk:
    """A remote and a clone of it below ``place``."""
    remote, repo = place / "remotes" / "shop.git", place / "repo"
    remote.parent.mkdir()
    git(place, "init", "-q", "--bare", "-b", "main", str(remote))
    git(place, "init", "-q", "-b", "main", str(repo))
    git(repo, "remote", "add", "origin", str(remote))
    desk = Desk(repo, remote)
    desk.commit(text="print('hello')\n", subject="Begin")
    git(repo, "push", "-q", "origin", "main")
    return desk


def says(
    parent: Parent, word: str, ref: str, argument: str = "", thread: str | None = "100.1", user: str = USER
) -> int:
    """A person says one of our words."""
    text = f"!{word} {argument}".strip()
    event = posted(channel=CHANNEL, ref=ref, user=user, text=text, thread=thread)
    return parent.deliver(event, Command(name=word, argument=argument))


async def turn(parent: Parent, words: str = "fix the login bug", ref: str = "100.1") -> None:
    """A run in the thread ``ref``."""
    number = len(parent.backend.runs)
    parent.says(words, ref)
    (await parent.run(number)).finish()
    await parent.until(lambda: parent.reactions(ref) == ["white_check_mark"], flow=True)


def at_github(desk: Desk, server: GitHubServer, **more: object) -> RepoSettings:
    """Its settings where the remote is that GitHub, asked with a token."""
    base = desk.settings(git_section=GitSection())
    section = ForgeSection(kind="github", token=TOKEN, api_url=f"http://127.0.0.1:{server.port}", **more)  # type: ignore[arg-type]  # of the section's
    return msgspec.structs.replace(base, config=msgspec.structs.replace(base.config, forge=section))


def owners_ssh(desk: Desk, home: Path) -> None:
    """What the owner takes for ssh leads to the remote, whatever it is called."""
    ssh = home / "ssh"
    ssh.write_text(f'#!/bin/sh\nfor last; do :; done\nexec sh -c "${{last%% *}} {desk.remote}"\n')
    ssh.chmod(0o755)
    with (home / ".gitconfig").open("a") as file:
        file.write(f"[core]\n\tsshCommand = {ssh}\n[ssh]\n\tvariant = ssh\n")
