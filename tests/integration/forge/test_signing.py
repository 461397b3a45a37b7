"""Commits made from chat are signed on the host, as the owner's own git signs: real git, ssh-keygen and gpg."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codebutler_worker.forge.remote import ForgeError
from codebutler_worker.forge.signing import signing_settings
from tests.integration.forge.kit import Desk, git, says
from tests.programs import require
from tests.shown import text_of
from tests.worker_kit import Parent, worker

OWNER = "ana@example.org"


def owner_says(home: Path, *settings: str) -> None:
    for key, value in zip(settings[::2], settings[1::2], strict=True):
        ran("git", "config", "--file", str(home / ".gitconfig"), key, value)


def ran(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def ssh_key(home: Path, passphrase: str = "") -> Path:
    require("ssh-keygen")
    key = home / "key"
    ran("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", OWNER, "-f", str(key))
    owner_says(home, "gpg.format", "ssh", "user.signingkey", str(key), "commit.gpgsign", "true")
    (home / "signers").write_text(f"{OWNER} {key.with_suffix('.pub').read_text()}")
    return key


async def committed(parent: Parent, desk: Desk) -> str:
    """What the thread is told when somebody commits what a run changed."""
    git(desk.repo, "config", "user.name", "Ana")
    git(desk.repo, "config", "user.email", OWNER)
    parent.says("change it", "100.1")
    run = await parent.run(0)
    (desk.repo / "app.py").write_text("print('changed')\n")
    run.finish()
    await parent.post_with("1 file changed")
    says(parent, "commit", "100.2", "Say *more*")
    return text_of(await parent.post_with("ommit"))


async def test_an_ssh_key_signs_what_is_committed_from_chat(desk: Desk, home: Path) -> None:
    ssh_key(home)
    async with worker(desk.settings(changes="card")) as parent:
        assert "✅ Committed" in await committed(parent, desk)
    signers = f"gpg.ssh.allowedSignersFile={home / 'signers'}"
    assert (
        git(desk.repo, "-c", signers, "log", "-1", "--format=%G? %GS %s %an") == f"G {OWNER} Say *more* Ana"
    )
    assert git(desk.repo, "show", "--format=", "--name-only") == "app.py"
    assert git(desk.repo, "status", "--porcelain", "--untracked-files=no") == ""
    assert git(desk.repo, "fsck", "--strict", "--no-dangling") == ""


async def test_so_does_gpg(
    desk: Desk, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require("gpg")
    # gpg-agent's socket needs a short path.
    place = tmp_path_factory.mktemp("g")
    place.chmod(0o700)
    monkeypatch.setenv("GNUPGHOME", str(place))
    ran("gpg", "--batch", "--passphrase", "", "--quick-generate-key", OWNER, "ed25519", "sign")
    owner_says(home, "commit.gpgsign", "true", "user.signingkey", OWNER)
    try:
        async with worker(desk.settings(changes="card")) as parent:
            assert "✅ Committed" in await committed(parent, desk)
        assert git(desk.repo, "log", "-1", "--format=%G? %GS") == f"G {OWNER}"
    finally:
        ran("gpgconf", "--kill", "all")


async def test_a_key_that_needs_its_passphrase_commits_nothing_and_says_what_to_do(
    desk: Desk, home: Path
) -> None:
    ssh_key(home, passphrase="a secret of the owner")
    before = git(desk.repo, "rev-parse", "HEAD")
    async with worker(desk.settings(changes="card")) as parent:
        told = await committed(parent, desk)
    assert "git could not sign the commit" in told
    assert "ssh-add" in told
    assert "\n" not in told.strip()
    assert git(desk.repo, "rev-parse", "HEAD") == before
    assert (desk.repo / "app.py").read_text() == "print('changed')\n"


async def test_who_does_not_sign_gets_a_plain_commit(desk: Desk, home: Path) -> None:
    ssh_key(home)
    owner_says(home, "commit.gpgsign", "false")
    async with worker(desk.settings(changes="card")) as parent:
        assert "✅ Committed" in await committed(parent, desk)
    assert git(desk.repo, "log", "-1", "--format=%G?") == "N"


async def test_the_repository_does_not_say_how_the_host_signs(desk: Desk, home: Path, tmp_path: Path) -> None:
    ssh_key(home)
    trap = tmp_path / "trap"
    evil = desk.repo / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {trap}\n")
    evil.chmod(0o755)
    for key, value in (
        ("gpg.ssh.program", str(evil)),
        ("gpg.program", str(evil)),
        ("gpg.ssh.defaultKeyCommand", str(evil)),
        ("user.signingkey", str(evil)),
        ("gpg.format", "x509"),
        ("core.fsmonitor", "false"),
    ):
        git(desk.repo, "config", key, value)
    async with worker(desk.settings(changes="card")) as parent:
        assert "✅ Committed" in await committed(parent, desk)
    assert "BEGIN SSH SIGNATURE" in git(desk.repo, "cat-file", "commit", "HEAD")
    assert not trap.exists()


@pytest.mark.parametrize("key", ["gpg.program", "gpg.ssh.program", "include.path"])
def test_a_program_or_a_file_in_the_repository_signs_nothing(desk: Desk, home: Path, key: str) -> None:
    evil = desk.repo / "evil"
    evil.write_text("[gpg]\n\tprogram = /bin/true\n")
    owner_says(home, "commit.gpgsign", "true", key, str(evil))
    with pytest.raises(ForgeError, match="in the repository"):
        signing_settings(desk.repo)


def test_a_condition_of_the_owner_counts_for_the_repository(desk: Desk, home: Path) -> None:
    (home / "work").write_text("[commit]\n\tgpgsign\n[user]\n\tsigningkey = /key\n")
    assert signing_settings(desk.repo) is None
    owner_says(home, f"includeIf.gitdir:{desk.repo.parent}/.path", str(home / "work"))
    assert signing_settings(desk.repo) == {"user.signingkey": "/key"}
