"""A turn and its files: it waits for them, goes on without what does not come, and sends what is named once."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from codebutler.domain.model import Command, File, Prompt, Upload
from codebutler.protocol.messages import Audit, Fetch, FetchFailed, FileChunk, FileTranscript, StopTurns
from codebutler_worker.agents.backend import Finished, Started, Text
from codebutler_worker.conversation.attachments import ATTEMPTS
from tests.events import clicked, edited, posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

PNG = b"\x89PNG\r\n\x1a\npixels"
PICTURE = File(id="F1", name="a b.png", mimetype="image/png", size_bytes=len(PNG))
CLIP = File(id="F2", name="audio_message.m4a", is_voice=True, size_bytes=9)


def share(parent: Parent, ts: str, *files: File, text: str = "", thread_ts: str | None = None) -> int:
    """A person shares files, perhaps with words."""
    event = posted(channel=CHANNEL, ref=ts, user=USER, text=text, files=files, thread=thread_ts)
    return parent.deliver(event, Prompt(text=text))


async def request(parent: Parent, number: int = 0) -> Fetch:
    """The worker's request ``number`` for a file, once it has come."""
    return (await parent.until(lambda: parent.said(Fetch)[number:], flow=True))[0]


def give(parent: Parent, fetch: Fetch, content: bytes) -> None:
    half = len(content) // 2
    for piece in (content[:half], content[half:]):
        parent.channel.send(FileChunk(request_id=fetch.request_id, data=piece))
    parent.channel.send(FileChunk(request_id=fetch.request_id, data=b"", last=True))


async def test_the_turn_waits_for_its_file_and_names_its_path(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE, text="what is this?")
        fetch = await request(parent)
        assert fetch.file_id == "F1"
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        assert parent.backend.runs == []
        give(parent, fetch, PNG)
        run = await parent.run(0)
        path = tmp_path / ".codebutler" / "files" / "F1-a_b.png"
        assert run.request.prompt == f"what is this?\n\n[attached file: {path} (image/png, 14 B)]"
        assert path.read_bytes() == PNG
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert "[attached file:" in parent.said(Audit)[0].text


async def test_a_later_turn_is_not_told_of_the_file_again(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE, text="look")
        give(parent, await request(parent), PNG)
        (await parent.run(0)).finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        parent.says("and now?", "100.2", "100.1")
        assert (await parent.run(1)).request.prompt == "and now?"
        assert len(parent.said(Fetch)) == 1


async def test_a_file_of_another_workspace_gets_its_name_with_its_content(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", File(id="F3"), text="look")
        fetch = await request(parent)
        known = File(id="F3", name="theirs.png", mimetype="image/png")
        parent.channel.send(FileChunk(request_id=fetch.request_id, data=PNG, last=True, file=known))
        assert "F3-theirs.png (image/png, 14 B)" in (await parent.run(0)).request.prompt


async def test_what_does_not_come_is_told_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE, text="look")
        fetch = await request(parent)
        parent.channel.send(FetchFailed(request_id=fetch.request_id, code="login_page"))
        post = await parent.post_with("the chat does not let me read it")
        assert post.thread == "100.1"
        assert "`a b.png`" in text_of(post)
        run = await parent.run(0)
        assert run.request.prompt == "look\n\n[attached file a b.png: it could not be fetched]"


async def test_what_breaks_on_the_way_is_tried_again(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE, text="look")
        for attempt in range(ATTEMPTS - 1):
            fetch = await request(parent, attempt)
            parent.channel.send(FileChunk(request_id=fetch.request_id, data=b"half of"))
            parent.channel.send(FetchFailed(request_id=fetch.request_id, code="unreachable"))
        give(parent, await request(parent, ATTEMPTS - 1), PNG)
        await parent.run(0)
        assert (tmp_path / ".codebutler" / "files" / "F1-a_b.png").read_bytes() == PNG


async def test_a_message_of_nothing_usable_fails_and_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE)
        give(parent, await request(parent), b"")
        await parent.post_with("it is empty")
        await parent.post_with("send it again")
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        assert parent.backend.runs == []


ODD = [
    (
        b"PK\x03\x04\x00\xff zip",
        "../re port.zip",
        "application/zip",
        "F7-re_port.zip (application/zip, 10 B)",
    ),
    (b"SQLite format 3\x00\x10", "shop.db", "", "F7-shop.db (unknown type, 17 B)"),
    (b"\x7fELF\x02\x01\x00", "core", "application/x-core", "F7-core (application/x-core, 7 B)"),
    (b"#!/bin/sh\nrm -rf /\n", "run.sh", "text/x-sh", "F7-run.sh (text/x-sh, 19 B)"),
    (b"\x00\x01", "call.mp3", "audio/mpeg", "F7-call.mp3 (audio/mpeg, 2 B)"),
    (b"", "empty.csv", "text/csv", "F7-empty.csv (text/csv, 0 B)"),
]


@pytest.mark.parametrize(("content", "name", "mimetype", "note"), ODD, ids=[one[1] for one in ODD])
async def test_any_file_is_kept_as_data_and_named_to_the_agent(
    tmp_path: Path, content: bytes, name: str, mimetype: str, note: str
) -> None:
    async with worker(settings(tmp_path)) as parent:
        shared = File(id="F7", name=name, mimetype=mimetype, size_bytes=len(content))
        share(parent, "100.1", shared, text="look")
        give(parent, await request(parent), content)
        assert f"/.codebutler/files/{note}]" in (await parent.run(0)).request.prompt
        kept = tmp_path / ".codebutler" / "files" / note.partition(" ")[0]
        assert kept.read_bytes() == content
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert [post for post in parent.posts if "go on without" in text_of(post)] == []


async def test_a_file_too_large_is_not_even_asked_for(tmp_path: Path) -> None:
    huge = File(id="F9", name="disk.img", size_bytes=2**40)
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", huge, text="look")
        await parent.post_with("it is larger than 32 MB")
        await parent.run(0)
        assert parent.said(Fetch) == []


async def test_a_hostile_directory_gets_nothing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    repo = tmp_path / "repo"
    repo.mkdir()
    async with worker(settings(repo)) as parent:
        files = repo / ".codebutler" / "files"
        files.rmdir()
        files.symlink_to(elsewhere)
        share(parent, "100.1", PICTURE, text="look")
        give(parent, await request(parent), PNG)
        await parent.post_with("it cannot be stored")
        await parent.run(0)
        assert list(elsewhere.iterdir()) == []


async def test_a_voice_message_is_shown_and_then_answered(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", CLIP)
        fetch = await request(parent)
        said = "run the <!channel> tests\nplease"
        parent.channel.send(FileTranscript(request_id=fetch.request_id, text=said))
        shown = await parent.post_with("🎤")
        assert "<!channel>" not in text_of(shown)
        assert "tests please" in text_of(shown)
        run = await parent.run(0)
        assert run.request.prompt == "[voice message, transcribed] run the <!channel> tests please"


async def test_a_recording_that_cannot_be_transcribed_is_a_file_like_any_other(tmp_path: Path) -> None:
    song = File(id="F7", name="song.mp3", mimetype="audio/mpeg", size_bytes=7)
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", song, text="cut the first minute")
        give(parent, await request(parent), b"ID3song")
        assert "set openai.apiKey" in text_of(await parent.post_with("could not be transcribed"))
        assert "/.codebutler/files/F7-song.mp3 (audio/mpeg, 7 B)]" in (await parent.run(0)).request.prompt


async def test_a_transcript_is_words_for_the_agent_and_no_command(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", CLIP)
        fetch = await request(parent)
        parent.channel.send(FileTranscript(request_id=fetch.request_id, text="!stop"))
        assert (await parent.run(0)).request.prompt.endswith("!stop")


async def test_stop_ends_the_wait(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE, text="look")
        await request(parent)
        parent.channel.send(StopTurns(user="ana"))
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
        assert parent.backend.runs == []


async def test_a_worker_that_died_waiting_asks_again_after_continue(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        share(parent, "100.1", PICTURE, text="look")
        await request(parent)
    async with worker(settings(tmp_path)) as parent:
        question = await parent.post_with("look")
        turn_id = next(
            element["value"]
            for block in blocks_of(question)
            for element in block.get("elements", [])
            if element["action_id"] == "codebutler.retry"
        )
        assert parent.said(Fetch) == []
        parent.deliver(
            clicked(
                channel=CHANNEL,
                user=USER,
                message="9000.000001",
                action_id="codebutler.retry",
                value=turn_id,
                press="500.1",
            )
        )
        give(parent, await request(parent), PNG)
        assert "F1-a_b.png (image/png" in (await parent.run(0)).request.prompt


async def test_an_edit_keeps_the_files(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=5)) as parent:
        await parent.stored(share(parent, "100.1", PICTURE, text="lok"))
        edit = edited(channel=CHANNEL, ref="100.1", user=USER, text="look", edit="101.0")
        await parent.stored(parent.deliver(edit, Prompt(text="look")))
        give(parent, await request(parent), PNG)
        prompt = (await parent.run(0)).request.prompt
        assert prompt.startswith("look\n\n[attached file: ")


async def test_files_do_not_steer_a_running_turn(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, busy="steer")) as parent:
        parent.backend.takes_steering = True
        parent.says("begin", "100.1")
        run = await parent.run(0)
        await parent.stored(share(parent, "100.2", PICTURE, text="look", thread_ts="100.1"))
        run.finish()
        give(parent, await request(parent), PNG)
        await parent.run(1)
        assert parent.backend.steered == []


async def test_a_command_takes_no_files(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        event = posted(channel=CHANNEL, ref="100.1", user=USER, text="!ping", files=(PICTURE,))
        await parent.stored(parent.deliver(event, Command(name="ping")))
        await parent.post_with("pong")
        assert parent.said(Fetch) == []


async def test_a_file_is_sent_at_once_and_not_again_for_the_answer(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    words = "Here it is.\n<<<SLACK:file>>> a.csv <<<END_SLACK>>>"
    async with worker(settings(tmp_path)) as parent:
        parent.says("send it", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Text(words))
        await parent.until(lambda: uploads(parent))
        run.does(Finished(True, words, "done"))
        answer = await parent.post_with("Here it is.")
        assert "SLACK" not in text_of(answer)
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert [(one.filename, one.content, one.thread) for one in uploads(parent)] == [
            ("a.csv", b"1,2\n", "100.1")
        ]


async def test_files_alone_are_an_answer(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    async with worker(settings(tmp_path)) as parent:
        parent.says("send it", "100.1")
        (await parent.run(0)).finish("<<<SLACK:file>>>a.csv<<<END_SLACK>>>")
        await parent.post_with("📎 `a.csv`")
        assert len(uploads(parent)) == 1


async def test_a_failed_turn_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    async with worker(settings(tmp_path)) as parent:
        parent.says("send it", "100.1")
        run = await parent.run(0)
        run.does(Finished(False, "<<<SLACK:file>>>a.csv<<<END_SLACK>>>", "failed"))
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        assert uploads(parent) == []


async def test_an_agent_cannot_flood_the_thread_with_files(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text("x")
    words = "".join(f"<<<SLACK:file>>>{number}.txt<<<END_SLACK>>>" for number in range(40))
    async with worker(settings(tmp_path)) as parent:
        parent.says("send all", "100.1")
        (await parent.run(0)).finish(words + "Done.")
        await parent.post_with("a run may send 19 files")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(uploads(parent)) == 19


def uploads(parent: Parent) -> list[Upload]:
    return [operation for operation in parent.operations if isinstance(operation, Upload)]
