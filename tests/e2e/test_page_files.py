"""A person at the chat page attaches files, drops them, records a voice message, and sees pictures."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from codebutler.workspace.api import Fault
from tests.browser import PATIENCE_MS, page_at
from tests.e2e.house import house
from tests.e2e.test_files import media
from tests.mediaserver.server import MediaServer, png

MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
DROP = """([target, name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name, { type: "text/plain" }));
  const details = { dataTransfer: carried, bubbles: true, cancelable: true };
  for (const kind of ["dragover", "drop"]) document.querySelector(target).dispatchEvent(new DragEvent(kind, details));
}"""


async def test_files_are_attached_dropped_taken_back_and_sent(tmp_path: Path) -> None:
    async with house(tmp_path, "sample") as built, page_at(built.workspace.url) as (page, errors):
        await expect(page.locator("#channel-name")).to_have_text("# sample")
        (tmp_path / "picture.png").write_bytes(png(80, 60, (20, 120, 220)))
        (tmp_path / "mistake.txt").write_text("not this one")
        chosen = [tmp_path / "picture.png", tmp_path / "mistake.txt"]
        await page.locator("#channel-composer input[type=file]").set_input_files(chosen)
        await page.evaluate(DROP, ["#channel-composer form", "notes.txt", "dropped words"])
        chips = page.locator("#channel-composer .attachments li")
        await expect(chips).to_have_count(3)
        await page.get_by_label("Remove mistake.txt").click()
        await expect(chips).to_have_count(2)
        await page.get_by_label("Message #sample").fill("look at <these>")
        await page.screenshot(path=tmp_path / "composer.png")
        await page.keyboard.press("Enter")
        message = page.locator("#messages .message")
        await expect(message).to_have_count(1)
        await expect(message).to_contain_text("look at <these>")
        await expect(message.locator(".file.picture img")).to_be_visible(timeout=PATIENCE_MS)
        await expect(message.locator(".file")).to_have_count(2)
        await expect(chips).to_have_count(0)
        stored = {file.name: file.content for file in built.workspace.workspace.files.values()}
        assert stored == {"picture.png": chosen[0].read_bytes(), "notes.txt": b"dropped words"}
        async with page.expect_download() as saved:
            await message.get_by_text("notes.txt").click()
        assert (await (await saved.value).path()).read_bytes() == b"dropped words"
        await page.screenshot(path=tmp_path / "page.png")
        assert errors == []


async def test_what_cannot_be_uploaded_stays_in_the_composer(tmp_path: Path) -> None:
    async with house(tmp_path, "sample") as built, page_at(built.workspace.url) as (page, _):
        (tmp_path / "a.txt").write_text("a")
        await page.locator("#channel-composer input[type=file]").set_input_files(tmp_path / "a.txt")
        await page.get_by_label("Message #sample").fill("here")
        built.workspace.faults.add(Fault(method="files.completeUploadExternal", kind="error"))
        await page.keyboard.press("Enter")
        await expect(page.locator("#channel-composer .hint")).to_contain_text("Not sent (internal_error)")
        await expect(page.locator("#channel-composer .attachments li")).to_have_count(1)
        assert await page.get_by_label("Message #sample").input_value() == "here"


async def test_a_voice_message_is_recorded_and_an_image_drawn(tmp_path: Path, git_repo: Path) -> None:
    async with MediaServer() as service, house(tmp_path, "sample") as built:
        await media(built, git_repo, service)
        async with page_at(built.workspace.url, flags=MICROPHONE) as (page, errors):
            await page.get_by_label("Message #sample").fill("!create-image a lighthouse")
            await page.keyboard.press("Enter")
            await expect(page.locator("#replies .file.picture img")).to_be_visible(timeout=PATIENCE_MS)
            await page.locator("#channel-composer").get_by_label("Record a voice message").click()
            stop = page.locator("#channel-composer").get_by_label("Send the recording")
            await expect(stop).to_be_visible()
            await stop.click()
            clip = page.locator("#messages .message", has_text="audio_message.webm")
            await expect(clip).to_have_count(1)
            stored = built.workspace.workspace.files.values()
            contents = [file.content or b"" for file in stored if file.name == "audio_message.webm"]
            assert [content[:4] for content in contents] == [b"\x1aE\xdf\xa3"]
            await page.screenshot(path=tmp_path / "drawn.png")
            assert errors == []
