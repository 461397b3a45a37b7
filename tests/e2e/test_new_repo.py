"""Repositories made from the chat.

| case | what happens |
|---|---|
| N01 | somebody who is listed clones one by `!new NAME URL`: a channel, they in it, the first message answered there |
| N02 | in a direct message, where nothing is served yet: an empty one, with an author where git knows none |
| N03 | killed at every step of it: one channel, one repository, one answer |
| N04 | nobody else may; what fails leaves nothing behind |
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from codebutler.config.paths import Home
from codebutler.config.registry import Registry
from codebutler.platform.kill_points import VARIABLE
from codebutler.workspace.state import Channel
from tests.commands import output_of
from tests.e2e.house import House, house, whole_text
from tests.e2e.test_matrix import QUICK
from tests.ordinary import give_away
from tests.programs import require

URL = "ssh://git@example.org/shop.git"
STEPS = ("draft", "made", "placed", "registered")


def remote_at(place: Path) -> Path:
    """A repository that the owner's ssh leads to, whatever the address."""
    remote = place / "remotes" / "shop.git"
    work = place / "remotes" / "work"
    who = ("-c", "user.name=Ana", "-c", "user.email=ana@example.org")
    remote.parent.mkdir()
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(work)], check=True)
    (work / "app.py").write_text("print('hello')\n")
    subprocess.run(["git", "-C", str(work), "add", "."], check=True)
    subprocess.run(["git", "-C", str(work), *who, "commit", "-qm", "Begin"], check=True)
    subprocess.run(["git", "-C", str(work), "push", "-q", str(remote), "main"], check=True)
    give_away(remote.parent)
    return remote


def allow(built: House, tmp_path: Path, *people: str) -> Path:
    """Let them make repositories; returns where."""
    root = tmp_path / "projects"
    root.mkdir()
    give_away(root)
    config = Home(built.home).config
    said = {"root": str(root), "allow": list(people), "author": "Ana Lopez <ana@example.org>"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "newRepos": said, "agent": QUICK}))
    return root


def owners_ssh(tmp_path: Path, remote: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nfor last; do :; done\nexec sh -c "${{last%% *}} {remote}"\n')
    ssh.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[core]\n\tsshCommand = {ssh}\n[ssh]\n\tvariant = ssh\n")


def channels(built: House, name: str) -> list[Channel]:
    return [each for each in built.workspace.workspace.channels.values() if each.name == name]


async def first_message(built: House, channel: str) -> None:
    ts = await built.say(channel, "list the files")
    assert await built.outcome(channel, ts) == "white_check_mark"


async def test_n01_a_clone_with_its_channel(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    owners_ssh(tmp_path, remote_at(tmp_path))
    async with house(tmp_path, "sample") as built:
        person = built.workspace.workspace.person
        root = allow(built, tmp_path, person.id)
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        ts = await built.say(channel, f"!new shop {URL}")
        answer = whole_text(await built.answer(channel, ts, "is ready in"))
        [made] = channels(built, "shop")
        assert f"<#{made.id}>" in answer
        assert "example.org/shop" in answer
        assert person.id in made.members
        assert "shop" in made.topic
        built.repositories.append(root / "shop")
        await first_message(built, made.id)
        assert (root / "shop" / "app.py").exists()
        assert [each.name for each in root.iterdir()] == ["shop"]
        again = await built.say(channel, "!new shop")
        await built.answer(channel, again, "a repository with that name already exists")
        assert len(channels(built, "shop")) == 1


async def test_n02_the_first_one_from_a_direct_message(tmp_path: Path) -> None:
    require("bwrap")
    async with house(tmp_path) as built:
        person, bot = built.workspace.workspace.person, built.workspace.workspace.bot
        root = allow(built, tmp_path, "*")
        await built.start_supervisor()
        await built.until_status(lambda status: status["slack"]["state"] == "connected")
        direct = built.workspace.workspace.open_im(person.id, bot.id).id
        ts = await built.say(direct, "!new Shop.js")
        await built.answer(direct, ts, "is ready in")
        [made] = channels(built, "shop-js")
        built.repositories.append(root / "Shop.js")
        ts = await built.say(made.id, "create hello.txt with Hello!")
        assert await built.outcome(made.id, ts) == "white_check_mark"
        await built.say(made.id, "!commit", ts)
        assert "Committed" in whole_text(await built.answer(made.id, ts, "ommit"))
        log = ("-c", "safe.directory=*", "-C", str(root / "Shop.js"), "log", "-1", "--format=%an <%ae>")
        assert await output_of("git", *log, env=built.env) == "Ana Lopez <ana@example.org>\n"


@pytest.mark.parametrize("step", STEPS)
async def test_n03_killed_in_between(tmp_path: Path, git_repo: Path, step: str) -> None:
    require("bwrap")
    owners_ssh(tmp_path, remote_at(tmp_path))
    (plans := tmp_path / "plans").mkdir()
    async with house(tmp_path, "sample", extra_env={VARIABLE: str(plans)}) as built:
        root = allow(built, tmp_path, built.workspace.workspace.person.id)
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        (plans / "parent.plan").write_text(f"new-repo.{step} 1\n")
        ts = await built.say(channel, f"!new shop {URL}")
        assert built.supervisor is not None
        assert await built.supervisor.wait() == -signal.SIGKILL
        await built.start_supervisor()
        await built.answer(channel, ts, "is ready in")
        [made] = channels(built, "shop")
        built.repositories.append(root / "shop")
        await first_message(built, made.id)
        told = [whole_text(each) for each in built.answers(channel, ts)]
        assert len([each for each in told if "is ready in" in each]) == 1
        assert [each.name for each in root.iterdir()] == ["shop"]
        assert sorted(each.name for each in Registry(Home(built.home)).load()) == ["sample", "shop"]


async def test_n04_nobody_else_and_nothing_half(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample", "taken") as built:
        person = built.workspace.workspace.person
        root = allow(built, tmp_path)
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        await built.supervise()
        ts = await built.say(channel, "!new shop")
        await built.answer(channel, ts, "newRepos.allow")
        await built.run("config", "set", "newRepos.allow", json.dumps([person.id]))
        for words, told in (
            ("!new taken", "a channel with that name already exists"),
            ("!new shop ext::sh", "not an address to clone from"),
            ("!new shop ../../etc", "no repository with that path"),
            ("!new shop https://user:geheim@example.org/shop.git", "revoke it"),
            ("!new shop ssh://git@example.invalid/shop.git", "cannot clone example.invalid/shop"),
        ):
            ts = await built.say(channel, words)
            answer = whole_text(await built.answer(channel, ts, "was not created"))
            assert told in answer
            assert "geheim" not in answer
        assert not list(root.iterdir())
        assert not channels(built, "shop")
        assert [each.name for each in Registry(Home(built.home)).load()] == ["sample"]
