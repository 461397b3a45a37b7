"""Jobs and timers of the running product.

| case | what happens |
|---|---|
| J01 | a job of a file written while the supervisor runs: said in the channel, its work in the thread |
| J02 | a broken file keeps the jobs and says why; `codebutler jobs` lists, pauses, resumes, runs |
| J03 | a timer set in a thread outlives a kill, and speaks there once, for whoever set it |
| J04 | jobs that a commit brings: said in the channel, none runs before `codebutler trust` |
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

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
                    "is no YAML" in message.text and "the jobs stay as they were" in message.text
                    for message in built.workspace.workspace.channel(channel).messages.values()
                )
                or None
            ),
        )
        assert "is paused" in await built.run("jobs", "pause", "sample/look")
        assert "paused: by the operator" in await built.run("jobs")
        assert "goes on" in await built.run("jobs", "resume", "look")
        assert "There is no job 'nope'" in await built.run("jobs", "run", "nope", check=False)
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
    assert "There is no job 'evil'" in await built.run("jobs", "run", "evil", check=False)
    await built.run("trust", "sample")
    while "evil" not in await built.run("jobs"):
        assert built.supervisor is not None
        assert built.supervisor.returncode is None, built.log()


async def test_j03_a_timer_outlives_a_kill(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        root = await built.say(channel, "!in 2s list the files")
        await built.answer(channel, root, "withdraws it")
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
