"""Files, voice and images on the whole product: a person uploads, a real agent gets a path, and back.

| case | what happens |
|---|---|
| L01 | a text file's path reaches the agent, which reads it inside its walls |
| L02 | files an agent names are uploaded in order; links out, private files and directories are not |
| L03 | an archive is kept as data, not executable, and named to the agent with its type and size |
| L04 | a voice message is transcribed, shown in the thread, and answered |
| L05 | without a service a voice message alone ends in a cross and says what to set |
| L06 | !create-image draws, uploads and keeps the picture; a refusal is told |
| L07 | a stranger's file is neither fetched nor stored |
| L08 | the offline agent shows an attached text |
| L09 | a session's log of 20 MB comes as one file; a longer one in parts, each once, also if the supervisor is killed |
| L10 | a log is sent again and again into one thread, whoever is killed wherever meanwhile: each comes once |
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from codebutler.platform import kill_points
from tests.e2e.house import House, Message, house, whole_text
from tests.e2e.test_matrix import QUICK, claude, model_env, rehearsal
from tests.mediaserver.server import KEY, MediaServer, png
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require


async def upload(
    built: House, channel: str, name: str, content: bytes, text: str = "", thread_ts: str | None = None
) -> tuple[str, str]:
    """Share a file as the person; returns the message's ts and the file's id."""
    answer = await built.person.files_upload_v2(
        channel=channel, filename=name, content=content, initial_comment=text, thread_ts=thread_ts
    )
    file_id = str(answer["file"]["id"])
    history = await built.person.conversations_history(channel=channel)
    shared = [m for m in history["messages"] if any(f["id"] == file_id for f in m.get("files", []))]
    return str(shared[0]["ts"]), file_id


def speech(text: str, path: Path) -> bytes:
    """Real speech, as a WAV file."""
    subprocess.run([require("espeak-ng"), "-w", str(path), text], check=True)
    return path.read_bytes()


def files_of(messages: list[Message]) -> list[dict[str, Any]]:
    return [file for message in messages for file in message.get("files", [])]


async def media(built: House, repo: Path, service: MediaServer) -> str:
    """A repository of the rehearsal agent with a service for speech and pictures; returns the channel."""
    require("bwrap")
    openai = {"apiKey": KEY, "baseUrl": service.url, "language": "en"}
    channel = await built.add_repo(repo, "sample", agent=QUICK, openai=openai)
    await built.supervise()
    return channel


async def test_l01_a_file_reaches_the_agent_by_its_path(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply("", (Call("Bash", {"command": "cat .codebutler/files/*"}),)), Reply("Read it."))
        ts, file_id = await upload(built, channel, "../my notes.txt", b"the word is quincunx\n", "read this")
        await built.answer(channel, ts, "Read it.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        path = git_repo / ".codebutler" / "files" / f"{file_id}-my_notes.txt"
        assert path.read_text() == "the word is quincunx\n"
        assert f"[attached file: {path} (text/plain, 21 B)]" in model.said(0)
        assert "quincunx" in model.said(1)
        assert "xox" not in json.dumps(model.requests)


async def test_l02_an_agent_sends_files_by_name(tmp_path: Path, git_repo: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    (git_repo / "report.csv").write_text("a,b\n1,2\n")
    (git_repo / "link.txt").symlink_to(secret)
    asked = ["report.csv", "link.txt", ".codebutler/config.json", ".git/config", str(secret), "src"]
    text = (
        "Here: " + "".join(f"<<<SLACK:file>>> {path} <<<END_SLACK>>>\n" for path in asked) + "All there is."
    )
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await claude(built, git_repo)
        model.play(Reply(text))
        ts = await built.say(channel, "send me everything")
        answer = await built.answer(channel, ts, "All there is.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "<<<" not in whole_text(answer)
        said = built.answers(channel, ts)
        assert [file["name"] for file in files_of(said)] == ["report.csv"]
        lines = "\n".join(whole_text(message) for message in said)
        assert [path for path in asked if f"`{path}` was not sent" in lines] == asked[1:]
        assert "outside the repository" in lines


async def test_l03_an_archive_is_kept_as_data(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        archive = Path(shutil.make_archive(str(tmp_path / "all"), "zip", git_repo)).read_bytes()
        ts, _ = await upload(built, channel, "all.zip", archive, "list the files")
        await built.answer(channel, ts, "README.md")
        assert await built.outcome(channel, ts) == "white_check_mark"
        (kept,) = (git_repo / ".codebutler" / "files").iterdir()
        assert kept.name.endswith("-all.zip")
        assert kept.read_bytes() == archive
        assert kept.stat().st_mode & 0o777 == 0o600


async def test_l04_a_voice_message_is_heard_shown_and_answered(tmp_path: Path, git_repo: Path) -> None:
    recording = speech("read readme", tmp_path / "said.wav")
    async with MediaServer(spoken="read README.md") as service, house(tmp_path, "sample") as built:
        channel = await media(built, git_repo, service)
        ts, _ = await upload(built, channel, "audio_message.wav", recording)
        shown = await built.answer(channel, ts, "🎤 “read README.md”")
        answer = await built.answer(channel, ts, "A sample repository")
        assert shown["ts"] < answer["ts"]
        assert await built.outcome(channel, ts) == "white_check_mark"
        heard = service.heard[0]
        assert heard.form == {"model": "whisper-1", "response_format": "json", "language": "en"}
        assert heard.filename == "audio_message.wav"
        assert heard.length_s > 0.3
        assert heard.loudest > 0.05
        assert KEY not in built.log()


async def test_l05_without_a_service_it_says_what_to_set(tmp_path: Path, git_repo: Path) -> None:
    recording = speech("read readme", tmp_path / "said.wav")
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        ts, _ = await upload(built, channel, "audio_message.wav", recording)
        await built.answer(channel, ts, "set openai.apiKey")
        assert await built.outcome(channel, ts) == "x"


async def test_l06_an_image_is_drawn_uploaded_and_kept(tmp_path: Path, git_repo: Path) -> None:
    async with MediaServer() as service, house(tmp_path, "sample") as built:
        channel = await media(built, git_repo, service)
        ts = await built.say(channel, "!create-image a lighthouse at dusk")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert service.drawn == [{"model": "gpt-image-1", "prompt": "a lighthouse at dusk", "n": 1}]
        kept = list((git_repo / ".codebutler" / "images").iterdir())
        assert [picture.read_bytes() for picture in kept] == [png(64, 64, (200, 120, 40))]
        sent = files_of(built.answers(channel, ts))
        assert [(file["name"], file["mimetype"]) for file in sent] == [(kept[0].name, "image/png")]
        service.status = 400
        ts = await built.say(channel, "!create-image something forbidden")
        assert await built.outcome(channel, ts) == "x"
        assert await built.answer(channel, ts, "scripted refusal")
        ts = await built.say(channel, "!create-image")
        assert await built.answer(channel, ts, "!create-image DESCRIPTION")


async def test_l07_a_strangers_file_is_not_touched(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        stranger = built.workspace.workspace.add_user("mallory", "xoxp-stranger")
        built.person.token = stranger.token
        ts, _ = await upload(built, channel, "evil.txt", b"run me", "read this")
        await built.answer(channel, ts, "not authorized")
        assert list((git_repo / ".codebutler" / "files").iterdir()) == []


async def test_l08_the_offline_agent_shows_an_attached_text(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await rehearsal(built, git_repo)
        ts, _ = await upload(built, channel, "notes.txt", b"the word is quincunx\n")
        await built.answer(channel, ts, "the word is quincunx")
        assert await built.outcome(channel, ts) == "white_check_mark"


async def test_l09_a_long_log_comes_whole(tmp_path: Path, git_repo: Path) -> None:
    lines = b"".join(
        b"\x1b[32m%08d\x1b[0m an ordinary line of a log\r\n" % number for number in range(600_000)
    )
    async with house(tmp_path, "sample") as built:
        channel = await built.add_repo(git_repo, "sample")
        logs = git_repo / ".codebutler" / "logs" / "sessions"
        logs.mkdir(parents=True)
        (logs / "short.log").write_bytes(lines[:20_000_000])
        (logs / "long.log").write_bytes(lines)
        await built.supervise()

        def sent(name: str) -> list[bytes]:
            stored = built.workspace.workspace.files.values()
            return [file.content or b"" for file in stored if file.shared_in and file.name.startswith(name)]

        await built.say(channel, "!logs short")
        assert await built.until("the short log", lambda: sent("short.log")) == [lines[:20_000_000]]
        ts = await built.say(channel, "!logs long")
        await built.until("its first part", lambda: sent("long.part-01"))
        await built.stop(signal.SIGKILL)
        await built.supervise()
        await built.answer(channel, ts, "joins them")
        names = [file["name"] for file in files_of(built.answers(channel, ts))]
        assert names == [f"long.part-{number:02}-of-02.log" for number in (1, 2)]
        assert b"".join(sent("long.part")) == lines


async def test_l10_each_file_of_one_name_comes_once_whoever_dies_where(
    tmp_path: Path, git_repo: Path
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    async with house(tmp_path, "sample", extra_env={kill_points.VARIABLE: str(plans)}) as built:
        channel = await built.add_repo(git_repo, "sample", agent=QUICK)
        logs = git_repo / ".codebutler" / "logs" / "sessions"
        logs.mkdir(parents=True)
        (logs / "short.log").write_bytes(b"a line\n" * 100)
        await built.supervise()
        root = await built.say(channel, "!logs short")
        await sent_files(built, channel, root, 1)
        for number, point in enumerate(("begun", "stored", "noted", "shared"), start=2):
            (plans / "parent.plan").write_text(f"upload.{point} 1\n")
            await built.say(channel, "!logs short", thread_ts=root)
            assert built.supervisor is not None
            assert await built.supervisor.wait() == -signal.SIGKILL
            await built.supervise()
            await sent_files(built, channel, root, number)
        (plans / "worker:sample.plan").write_text("mark.before 1\n")
        await built.say(channel, "!logs short", thread_ts=root)
        await sent_files(built, channel, root, 6)
        assert not (plans / "worker:sample.plan").read_text()


async def sent_files(built: House, channel: str, root: str, number: int) -> None:
    """Until so many files stand in the thread and nothing is left to be sent: then each stands there once."""

    def ids() -> list[str]:
        return [file["id"] for file in files_of(built.answers(channel, root))]

    await built.until(f"{number} files", lambda: len(ids()) >= number or None)
    await built.until_status(lambda status: status["outbox"]["pending"] == 0)
    assert len(ids()) == len(set(ids())) == number
