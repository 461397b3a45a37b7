"""A hostile repository and a hostile agent against the push: each row is one try, and none may come through.

The walls are real here: what the repository's configuration starts inside may run there; the canary lies outside.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from codebutler.config.permission import decide_request
from codebutler.config.schema import (
    AuthorizationRule,
    AuthorizationSection,
    ForgeSection,
    GitSection,
    RepoSettings,
)
from codebutler.domain.clock import Clock
from codebutler.domain.model import Command, Post
from codebutler_worker.forge.push import service_of
from codebutler_worker.forge.remote import ForgeError, validate_remote
from codebutler_worker.tree.tree import Git, Tree
from tests.events import posted
from tests.integration.forge.kit import Desk, git, says
from tests.programs import require
from tests.shown import text_of
from tests.walls import walled
from tests.worker_kit import CHANNEL, USER, OneAgent, Parent, ScriptedBackend, worker

TOPIC = "topic"


class WalledAgent(OneAgent):
    """Git looks at the checkout from behind real walls."""

    async def tree(self, workdir: Path) -> Tree:
        home = self._repo.parent / "agents-home"
        home.mkdir(exist_ok=True)
        return Tree(Git(walled(), workdir, home))


@contextlib.asynccontextmanager
async def walled_worker(settings: RepoSettings) -> AsyncIterator[Parent]:
    made: list[ScriptedBackend] = []

    def agents(told: RepoSettings, clock: Clock) -> OneAgent:
        made.append(ScriptedBackend(clock))
        return WalledAgent(made[0], told)

    async with worker(settings, agents=agents) as parent:
        parent.backend = made[0]
        yield parent


class Trap:
    """What must not be touched: a file that a program would make, and a remote of the attacker's."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        place = desk.repo.parent
        self.canary = place / "canary"
        self.script = place / "evil.sh"
        self.script.write_text(f"#!/bin/sh\ntouch {self.canary}\nexit 1\n")
        self.script.chmod(0o755)
        self.elsewhere = place / "remotes" / "evil.git"
        git(place, "init", "-q", "--bare", str(self.elsewhere))

    def configure(self, text: str) -> None:
        """Write into the repository's configuration as an agent without walls could."""
        filled = text.format(evil=self.script, elsewhere=self.elsewhere, remotes=self.desk.remote.parent)
        with (self.desk.repo / ".git/config").open("a") as file:
            file.write(filled)

    @property
    def is_untouched(self) -> bool:
        refs = git(self.elsewhere, "for-each-ref")
        return not self.canary.exists() and refs == ""


@pytest.fixture
def trap(desk: Desk) -> Trap:
    require("bwrap")
    git(desk.repo, "checkout", "-qb", TOPIC)
    desk.commit()
    return Trap(desk)


async def answered(parent: Parent, ref: str = "100.2", argument: str = "") -> str:
    """What `!push` is answered with."""
    before = len(parent.posts)
    says(parent, "push", ref, argument)
    await parent.until(lambda: len(parent.posts) > before and parent.is_idle(), flow=True)
    found: Post = parent.posts[before]
    return text_of(found)


CONFIGURATIONS = {
    "hooks elsewhere": "[core]\n\thooksPath = {evil}.d\n",
    "fsmonitor": "[core]\n\tfsmonitor = {evil}\n",
    "ssh": "[core]\n\tsshCommand = {evil}\n[ssh]\n\tvariant = simple\n",
    "askpass": "[core]\n\taskPass = {evil}\n",
    "git proxy": "[core]\n\tgitProxy = {evil}\n",
    "alternate refs": "[core]\n\talternateRefsCommand = {evil}\n",
    "pager": "[core]\n\tpager = {evil}\n[pager]\n\tpush = {evil}\n\tlog = {evil}\n",
    "editor": "[core]\n\teditor = {evil}\n",
    "alias": "[alias]\n\tpush = !{evil}\n\tls-remote = !{evil}\n",
    "credential helper": "[credential]\n\thelper = !{evil}\n",
    "filter": '[filter "x"]\n\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n\trequired = true\n',
    "external diff": "[diff]\n\texternal = {evil}\n",
    "signing program": "[push]\n\tgpgSign = true\n[gpg]\n\tprogram = {evil}\n[commit]\n\tgpgSign = true\n",
    "receive-pack": '[remote "origin"]\n\treceivepack = {evil}\n\tuploadpack = {evil}\n',
    "remote's helper": '[remote "origin"]\n\tvcs = {evil}\n',
    "remote's proxy": '[remote "origin"]\n\tproxy = http://127.0.0.1:1\n[http]\n\tproxy = http://127.0.0.1:1\n',
    "insteadOf": '[url "{elsewhere}"]\n\tinsteadOf = {remotes}/shop.git\n',
    "pushInsteadOf": '[url "{elsewhere}"]\n\tpushInsteadOf = {remotes}/shop.git\n',
    "pack hook": "[uploadpack]\n\tpackObjectsHook = {evil}\n",
    "push everything": '[push]\n\tdefault = matching\n\tfollowTags = true\n[remote "origin"]\n\tmirror = true\n',
    "push refspec": '[remote "origin"]\n\tpush = +refs/heads/*:refs/heads/*\n',
    "submodules on demand": "[push]\n\trecurseSubmodules = on-demand\n[submodule]\n\trecurse = true\n",
    "any protocol": "[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always\n",
    "partial clone": '[remote "evil"]\n\turl = ext::{evil}\n\tpromisor = true\n[extensions]\n\tpartialClone = evil\n',
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGURATIONS)
async def test_what_the_repositorys_configuration_says_starts_nothing(trap: Trap, name: str) -> None:
    desk, main = trap.desk, trap.desk.at("main")
    commit = git(desk.repo, "rev-parse", "HEAD")
    git(desk.repo, "tag", "v1")
    git(desk.repo, "branch", "secret-branch")
    for directory in (Path(f"{trap.script}.d"), desk.repo / ".git/hooks"):
        directory.mkdir(exist_ok=True)
        for hook in ("pre-push", "reference-transaction", "post-index-change", "pre-commit", "post-checkout"):
            (directory / hook).write_bytes(trap.script.read_bytes())
            (directory / hook).chmod(0o755)
    (desk.repo / ".gitattributes").write_text("* filter=x diff=x\n")
    trap.configure(CONFIGURATIONS[name])
    async with walled_worker(desk.settings()) as parent:
        told = await answered(parent)
    assert trap.is_untouched
    assert desk.at("main") == main
    # Whatever it said of the address, it went where the owner's `origin` is, or nowhere.
    assert desk.branches <= {"main", TOPIC}
    assert git(desk.remote, "tag") == ""
    assert "Pushed" in told
    assert desk.at(TOPIC) == commit


async def test_an_included_configuration_counts_for_nothing(trap: Trap) -> None:
    (trap.desk.repo / "more").write_text(f'[remote "origin"]\n\tpushurl = {trap.elsewhere}\n')
    trap.configure("[include]\n\tpath = ../more\n")
    async with walled_worker(trap.desk.settings()) as parent:
        await answered(parent)
    assert trap.is_untouched


@pytest.mark.parametrize(
    "url",
    [
        "ext::{evil} %S", "--receive-pack={evil}", "-oProxyCommand={evil}:x", "ssh://-oProxyCommand={evil}/x",
        "{repo}/evil.git", "file://{elsewhere}", "{elsewhere}/../../repo/evil.git", "https://-x/y", "host:-x",
    ],
)  # fmt: skip
async def test_an_address_that_starts_a_program_or_leads_into_the_checkout_is_refused(
    trap: Trap, url: str
) -> None:
    desk, inside = trap.desk, trap.desk.repo / "evil.git"
    git(desk.repo, "init", "-q", "--bare", str(inside))
    (inside / "hooks/pre-receive").write_bytes(trap.script.read_bytes())
    (inside / "hooks/pre-receive").chmod(0o755)
    said = url.format(evil=trap.script, elsewhere=trap.elsewhere, repo=desk.repo)
    git(desk.repo, "config", "remote.origin.url", said)
    async with walled_worker(desk.settings()) as parent:
        told = await answered(parent)
    assert told.startswith("❌")
    assert trap.is_untouched


async def test_a_directory_that_the_configuration_does_not_name_is_refused(trap: Trap) -> None:
    async with walled_worker(trap.desk.settings(git_section=GitSection())) as parent:
        assert "git.localRemotes" in await answered(parent)
    assert trap.desk.branches == {"main"}


@pytest.mark.parametrize(
    "name",
    [
        "--force",
        "-f",
        "+main",
        "x:main",
        "--receive-pack=touch",
        "refs/heads/main",
        "a..b",
        "main\\",
        "é" * 150,
    ],
)
async def test_a_branch_named_like_an_option_or_a_refspec_is_refused(trap: Trap, name: str) -> None:
    desk, main = trap.desk, trap.desk.at("main")
    commit = git(desk.repo, "rev-parse", "HEAD")
    (desk.repo / ".git" / f"refs/heads/{name}").parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        (desk.repo / ".git" / f"refs/heads/{name}").write_text(f"{commit}\n")
    (desk.repo / ".git/HEAD").write_text(f"ref: refs/heads/{name}\n")
    async with walled_worker(desk.settings()) as parent:
        assert (await answered(parent)).startswith("❌")
    assert desk.at("main") == main
    assert desk.branches == {"main"}


@pytest.mark.parametrize("name", ["MAIN", "Master", "ｍａｉｎ"])
async def test_a_protected_branch_in_other_letters_is_protected(trap: Trap, name: str) -> None:
    git(trap.desk.repo, "checkout", "-qb", name)
    async with walled_worker(trap.desk.settings()) as parent:
        await answered(parent)
    (own,) = trap.desk.branches - {"main"}
    assert own.startswith("codebutler/")


async def test_the_remotes_default_branch_is_protected_whatever_it_is_called(trap: Trap) -> None:
    desk = trap.desk
    git(desk.remote, "branch", "-m", "main", "trunk")
    git(desk.remote, "symbolic-ref", "HEAD", "refs/heads/trunk")
    before = desk.at("trunk")
    git(desk.repo, "checkout", "-qb", "trunk")
    async with walled_worker(desk.settings()) as parent:
        await answered(parent)
        await answered(parent, "100.3", "force")
    assert desk.at("trunk") == before


async def test_a_symbolic_branch_leads_to_no_other(trap: Trap) -> None:
    desk, main = trap.desk, trap.desk.at("main")
    git(desk.repo, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git(desk.repo, "symbolic-ref", "HEAD", "refs/heads/alias")
    desk.commit(subject="On main by its other name")
    async with walled_worker(desk.settings()) as parent:
        await answered(parent)
    assert desk.at("main") == main
    (own,) = desk.branches - {"main"}
    assert own.startswith("codebutler/")


async def test_objects_of_another_repository_are_not_sent(trap: Trap) -> None:
    desk, place = trap.desk, trap.desk.repo.parent
    secret = place / "secret"
    git(place, "init", "-q", "-b", "main", str(secret))
    (secret / "keys").write_text("hidden\n")
    git(secret, "add", ".")
    git(secret, "commit", "-qm", "Secret")
    commit = git(secret, "rev-parse", "HEAD")
    (desk.repo / ".git/objects/info/alternates").write_text(f"{secret}/.git/objects\n")
    (desk.repo / f".git/refs/heads/{TOPIC}").write_text(f"{commit}\n")
    async with walled_worker(desk.settings()) as parent:
        assert (await answered(parent)).startswith("❌")
    assert desk.branches == {"main"}
    assert git(desk.remote, "cat-file", "-t", commit, check=False) == ""


async def test_replaced_and_grafted_commits_are_sent_as_they_are(trap: Trap) -> None:
    desk = trap.desk
    commit, parent_of = git(desk.repo, "rev-parse", "HEAD"), git(desk.repo, "rev-parse", "HEAD~")
    other = git(desk.repo, "commit-tree", "-m", "Other", git(desk.repo, "rev-parse", "HEAD~^{tree}"))
    git(desk.repo, "replace", commit, other)
    (desk.repo / ".git/info").mkdir(exist_ok=True)
    (desk.repo / ".git/info/grafts").write_text(f"{commit}\n")
    async with walled_worker(desk.settings()) as parent:
        await answered(parent)
    assert desk.at(TOPIC) == commit
    assert git(desk.remote, "log", "-1", "--format=%P %s", TOPIC) == f"{parent_of} Change it"


async def test_a_submodule_is_neither_read_nor_pushed(trap: Trap) -> None:
    desk = trap.desk
    sub = desk.repo / "sub"
    git(desk.repo, "init", "-q", str(sub))
    (sub / "x").write_text("1\n")
    git(sub, "add", ".")
    git(sub, "commit", "-qm", "Sub")
    git(sub, "remote", "add", "origin", str(trap.elsewhere))
    (sub / ".git/hooks").mkdir(exist_ok=True)
    (sub / ".git/hooks/pre-push").write_bytes(trap.script.read_bytes())
    (sub / ".git/hooks/pre-push").chmod(0o755)
    evil = trap.script
    (desk.repo / ".gitmodules").write_text(
        f'[submodule "sub"]\n\tpath = sub\n\turl = ext::{evil}\n\tupdate = !{evil}\n'
    )
    git(desk.repo, "add", ".gitmodules", "sub")
    git(desk.repo, "commit", "-qm", "Add it")
    trap.configure("[push]\n\trecurseSubmodules = on-demand\n")
    async with walled_worker(desk.settings()) as parent:
        await answered(parent)
    assert trap.is_untouched
    assert desk.at(TOPIC) == git(desk.repo, "rev-parse", "HEAD")


OTHERS = "theirs"


def others_branch(desk: Desk) -> str:
    """Somebody else's branch on the remote."""
    tree = git(desk.remote, "rev-parse", "main^{tree}")
    commit = git(desk.remote, "commit-tree", "-p", "main", "-m", "Theirs", tree)
    git(desk.remote, "update-ref", f"refs/heads/{OTHERS}", commit)
    return commit


def go_back(desk: Desk) -> None:
    git(desk.repo, "checkout", "-q", "-B", OTHERS, "main")
    desk.commit("evil.py", subject="Instead of theirs")


def as_they_left_it(desk: Desk) -> None:
    git(desk.repo, "fetch", "-q", "origin")
    git(desk.repo, "checkout", "-q", "-B", OTHERS, f"origin/{OTHERS}")


def on_top(desk: Desk) -> None:
    as_they_left_it(desk)
    desk.commit("more.py", subject="On top of theirs")


@pytest.mark.parametrize("first", [None, as_they_left_it, on_top])
async def test_nobodys_branch_is_rewritten(trap: Trap, first: Callable[[Desk], None] | None) -> None:
    desk, theirs = trap.desk, others_branch(trap.desk)
    async with walled_worker(desk.settings()) as parent:
        if first is not None:
            first(desk)
            await answered(parent, "100.2")
        go_back(desk)
        assert (await answered(parent, "100.3")).startswith("❌")
        assert (await answered(parent, "100.4", "force")).startswith("❌")
    assert git(desk.remote, "merge-base", OTHERS, theirs) == theirs


def test_only_who_may_push_pushes(desk: Desk) -> None:
    settings = desk.settings()
    rules = (AuthorizationRule(channels=(CHANNEL,), users=("*",), allowed_prefixes=("claude",)),)
    ruled = msgspec.structs.replace(settings.config, authorization=AuthorizationSection(rules=rules))
    event = posted(channel=CHANNEL, ref="1.1", user=USER, text="!push")
    assert decide_request(settings.config, event, Command(name="push")).allowed
    assert not decide_request(ruled, event, Command(name="push")).allowed


def test_the_token_goes_to_no_host_that_only_the_repository_names(desk: Desk) -> None:
    evil = validate_remote("https://github.evil.example/acme/shop", desk.repo, ())
    plain = desk.settings(git_section=GitSection())
    told = ForgeSection(token="ghp_0123456789abcdefghijklmnopqrstuvwxyz")
    settings = msgspec.structs.replace(plain, config=msgspec.structs.replace(plain.config, forge=told))
    with pytest.raises(ForgeError, match=r"not sent to github\.evil\.example"):
        service_of(settings, evil, desk.repo)
    own = msgspec.structs.replace(settings.config, git=GitSection(remote=evil.url))
    assert service_of(msgspec.structs.replace(settings, config=own), evil, desk.repo) is not None
    # A pull request that is still followed may be at a host that the repository named once.
    other = msgspec.structs.replace(own, git=GitSection(remote="https://github.example.org/acme/shop"))
    with pytest.raises(ForgeError, match=r"not sent to github\.evil\.example"):
        service_of(msgspec.structs.replace(settings, config=other), evil, desk.repo)


@pytest.mark.parametrize("by", ["its path", "a link", "a condition"])
async def test_a_file_of_the_repository_that_the_owner_includes_counts_for_nothing(
    trap: Trap, home: Path, by: str
) -> None:
    named = trap.desk.repo / "team.gitconfig"
    named.write_text(
        f'[url "{trap.elsewhere}"]\n\tinsteadOf = {trap.desk.remote}\n[core]\n\tpager = {trap.script}\n'
    )
    if by == "a link":
        link = home / "team.gitconfig"
        link.symlink_to(named)
        named = link
    section = 'includeIf "gitdir:/**"' if by == "a condition" else "include"
    with (home / ".gitconfig").open("a") as file:
        file.write(f"[{section}]\n\tpath = {named}\n")
    async with walled_worker(trap.desk.settings()) as parent:
        told = await answered(parent)
    assert trap.is_untouched
    assert "is in the repository, where agents may write" in told


@pytest.mark.parametrize(
    "name", ["fsmonitor", "filter", "signing program", "alias", "editor", "hooks elsewhere"]
)
async def test_neither_trailers_nor_signatures_start_what_the_repository_says(
    trap: Trap, home: Path, name: str
) -> None:
    require("ssh-keygen")
    owner = home / "key"
    git(home, "config", "--file", str(home / ".gitconfig"), "commit.gpgsign", "true")
    git(home, "config", "--file", str(home / ".gitconfig"), "gpg.format", "ssh")
    git(home, "config", "--file", str(home / ".gitconfig"), "user.signingkey", str(owner))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(owner)], check=True)  # noqa: ASYNC221 - a moment
    section = GitSection(local_remotes=(str(trap.desk.remote.parent),), trailers=("agent",))
    async with walled_worker(trap.desk.settings(git_section=section, changes="card")) as parent:
        parent.says("change it", "100.1")
        run = await parent.run(0)
        trap.desk.commit("more.py", subject="$(touch canary)\n\nAgent: `touch canary`")
        (trap.desk.repo / "app.py").write_text("print('again')\n")
        trap.configure(f"[user]\n\tname = Ana\n\temail = ana@example.org\n{CONFIGURATIONS[name]}")
        run.finish()
        await parent.post_with("changed")
        says(parent, "commit", "100.2")
        await parent.post_with("✅ Committed")
    assert trap.is_untouched
    assert not (trap.desk.repo / "canary").exists()
    assert "BEGIN SSH SIGNATURE" in git(
        trap.desk.repo, "-c", "core.fsmonitor=false", "cat-file", "commit", "HEAD"
    )
