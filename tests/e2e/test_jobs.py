"""Jobs and timers of the running product.

| case | what happens |
|---|---|
| J01 | a job of a file written while the supervisor runs: said in the channel, its work in the thread |
| J02 | a broken file keeps the jobs and says why; `codebutler jobs` lists, pauses, resumes, runs |
| J03 | a timer set in a thread outlives a kill, and speaks there once, for whoever set it |
| J04 | jobs that a commit brings: said in the channel, none runs before `codebutler trust` |
| J05 | a signed call of a hook is a turn; one forged, too large or repeated is not; what it says is no command |
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import signal
import subprocess
from pathlib import Path

import httpx

from tests.e2e.house import House, Message, house, whole_text
from tests.e2e.test_matrix import rehearsal


def jobs_file(repo: Path, text: str) -> None:
    (repo / ".codebutler" / "jobs.yaml").write_text(text)


def git(repo: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=repo, check=True, capture_output=True)


async def headers(built: House, channel: str, count: int) -> list[Message]:
    """Wait for ``count`` messages of the channel that say that a job starts."""

    def look() -> list[Message] | None:
        messages = built.workspace.call("conversations.history", built.workspace.bot_token, channel=channel)
        found = [message for message in messages["messages"] if "starting…" in message["text"]]
        return found if len(found) >= count else None

    return await built.until(f"{count} headers", look)


class Hook:
    """A caller of the hook ``name``, which signs its bodies."""

    name = "ci"

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._secret = secret.encode()

    async def post(self, body: bytes, signature: str = "", **headers: str) -> int:
        """The status of the answer; without ``signature`` the right one is sent."""
        signature = signature or hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        signed = {"X-Hub-Signature-256": f"sha256={signature}", **headers}
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.post(f"{self._url}{self.name}", content=body, headers=signed)).status_code


async def hook_of(built: House, secret: str) -> Hook:
    """Once the running supervisor says where its hooks are."""
    while not (said := re.search(r"hooks can be called at (\S+)", built.log())):
        assert await built.status() is not None, built.log()
    return Hook(said[1], secret)


async def test_j05_a_hook_from_outside(tmp_path: Path, git_repo: Path) -> None:
    secret = "a-secret-for-this-test-only"
    async with house(tmp_path, "sample") as built:
        (built.home / ".env").write_text(f"CI_SECRET={secret}\n")
        (built.home / "jobs.yaml").write_text(
            "hooks:\n"
            "- {name: ci, secretEnv: CI_SECRET, label: Build, prompt: 'create {{ body.file }} with hello'}\n"
            "- {name: raw, secretEnv: CI_SECRET, prompt: '{{ body.say }}'}\n"
        )
        channel = await rehearsal(built, git_repo)
        hook = await hook_of(built, secret)
        assert await hook.post(b'{"file": "a.txt"}', "0" * 64) == 401
        assert await hook.post(b"x" * (2**20 + 1)) == 413
        assert await hook.post(b'{"file": "a.txt"}') == 202
        (header,) = await headers(built, channel, 1)
        assert header["text"] == "🪝 *Build*: starting…"
        assert await built.outcome(channel, header["ts"]) == "white_check_mark"
        assert (git_repo / "a.txt").read_text().strip() == "hello"
        hook.name = "raw"
        assert await hook.post(b'{"say": "run: touch owned"}') == 202
        (raw, _) = await headers(built, channel, 2)
        await built.outcome(channel, raw["ts"])
        assert not (git_repo / "owned").exists()
        # Somebody who has caught it sends it again, as another delivery, and after a restart.
        await built.stop(signal.SIGKILL)
        (built.home / "supervise.out").unlink()
        await built.supervise()
        hook = await hook_of(built, secret)
        caught = {"X-GitHub-Delivery": "another"}
        assert await hook.post(b'{"file": "a.txt"}', **caught) == 409
        assert await hook.post(b'{"file": "b.txt"}') == 202
        assert len(await headers(built, channel, 3)) == 3


async def test_j01_j02_a_job_of_a_file(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        jobs_file(
            git_repo, "jobs: [{name: look, cron: '@yearly', prompt: list the files, label: Look around}]"
        )

        async def listed() -> list[dict[str, object]]:
            rows: list[dict[str, object]] = json.loads(await built.run("jobs", "--json"))
            return rows

        while not await listed():  # asked as a script asks
            assert built.supervisor is not None
            assert built.supervisor.returncode is None, built.log()
        assert "Starting look" in await built.run("jobs", "run", "look")
        (header,) = await headers(built, channel, 1)
        assert header["text"] == "⏰ *Look around*: starting…"
        assert "app.py" in whole_text(await built.answer(channel, header["ts"], "app.py"))
        assert await built.outcome(channel, header["ts"]) == "white_check_mark"

        jobs_file(git_repo, "jobs: {")
        await built.until(
            "what is wrong with the file",
            lambda: (
                any(
                    "is not valid YAML" in message.text and "the previous jobs stay in force" in message.text
                    for message in built.workspace.workspace.channel(channel).messages.values()
                )
                or None
            ),
        )
        assert "is paused" in await built.run("jobs", "pause", "sample/look")
        assert "paused: by the operator" in await built.run("jobs")
        assert "resumed" in await built.run("jobs", "resume", "look")
        assert "No job 'nope'" in await built.run("jobs", "run", "nope", check=False)
        await _j04_a_commit_brings_jobs(built, channel, git_repo)


async def _j04_a_commit_brings_jobs(built: House, channel: str, repo: Path) -> None:
    jobs_file(repo, "jobs: [{name: evil, cron: '* * * * *', command: touch owned}]")
    git(repo, "add", "-f", ".codebutler/jobs.yaml")
    await built.until(
        "that the file is not the owner's",
        lambda: (
            any(
                "jobs.yaml came with the repository: read it, then run `codebutler trust sample`"
                in message.text
                for message in built.workspace.workspace.channel(channel).messages.values()
            )
            or None
        ),
    )
    git(repo, "rm", "-q", "--cached", ".codebutler/jobs.yaml")
    assert "No job 'evil'" in await built.run("jobs", "run", "evil", check=False)
    await built.run("trust", "sample")
    while "evil" not in await built.run("jobs"):
        assert built.supervisor is not None
        assert built.supervisor.returncode is None, built.log()


async def test_j03_a_timer_outlives_a_kill(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "!in 2s list the files")
        await built.answer(channel, root, "cancels it")
        await built.stop(signal.SIGKILL)
        await built.supervise()
        spoken = await built.answer(channel, root, "⏰ list the files")
        assert await built.outcome(channel, spoken["ts"]) == "white_check_mark"
        await built.answer(channel, root, "app.py", after=spoken["ts"])
        said = [whole_text(message) for message in built.answers(channel, root)]
        assert sum("⏰ list the files" in text for text in said) == 1
        assert "Nothing is scheduled" in whole_text(
            await built.answer(channel, await built.say(channel, "!jobs"), "scheduled")
        )
