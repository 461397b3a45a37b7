"""The product as root runs it: agents are the repository's owner, and nothing starts in what is root's own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands import output_of
from tests.e2e.house import DEADLINE_S, command, house
from tests.ordinary import ORDINARY_ID, give_away

pytestmark = pytest.mark.root
REHEARSAL = {"default": "rehearsal", "debounceSeconds": 0}


async def test_on_every_path_it_is_the_owner_or_nobody(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample", agent=REHEARSAL)
        await built.supervise()
        ts = await built.say(channel, "!c id -u; id -g; id -G; touch made")
        await built.answer(channel, ts, "\n".join([str(ORDINARY_ID)] * 3))
        await built.outcome(channel, ts)
        assert (git_repo / "made").stat().st_uid == ORDINARY_ID
        assert (git_repo / ".codebutler" / "store.db").stat().st_uid == 0

        built.repositories.clear()
        os.chown(git_repo, 0, 0)
        for words in ("list the files", "!c touch owned", "!diff", "run: touch owned"):
            ts = await built.say(channel, words)
            told = await built.answer(channel, ts, f"chown -R 1000:1000 {git_repo}")
            assert "Traceback" not in told["text"]
        assert not (git_repo / "owned").exists()


async def test_it_cannot_be_registered_and_doctor_says_so(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        give_away(git_repo, 0)
        to = ("--channel", built.channel_id("sample"))
        refused = await output_of(*command("add-repo", str(git_repo), *to), env=built.env, check=False)
        assert "agents do not run as root" in refused
        assert not (git_repo / ".codebutler").exists()
        give_away(git_repo)
        await built.add_repo(git_repo, "sample", agent=REHEARSAL)
        os.chown(git_repo, 0, 0)
        told = await built.run("doctor", check=False)
        assert f"chown -R 1000:1000 {git_repo}" in told


async def test_a_demo_by_root_works_on_a_copy_that_is_an_ordinary_users(
    tmp_path: Path, git_repo: Path
) -> None:
    (closed := tmp_path / "closed").mkdir(mode=0o700)
    give_away(git_repo, 0)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": str(closed)}
    with (tmp_path / "errors").open("wb") as errors:
        demo = await asyncio.create_subprocess_exec(
            *command("demo", str(git_repo), "--no-browser", "--json"),
            env={**env, "SUDO_UID": "4321", "SUDO_GID": "4321"},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert demo.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            line = await demo.stdout.readline()
        assert line, (tmp_path / "errors").read_text()
        told = json.loads(line)
        assert {path.stat().st_uid for path in (Path(told["path"]), Path(told["path"], "src", "app.py"))} == {
            4321
        }
        asked = command("send", told["repo"], "!c id -u; touch made", "--wait")
        assert "4321" in await output_of(*asked, env={**env, "CODEBUTLER_HOME": told["home"]})
        assert Path(told["path"], "made").stat().st_uid == 4321
    finally:
        if demo.returncode is None:
            demo.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            await demo.wait()
    assert git_repo.stat().st_uid == 0
