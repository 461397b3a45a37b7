"""What an agent encloses in its text is said at once, in order, with its sign, and not again in the answer."""

from __future__ import annotations

from pathlib import Path

from codebutler.domain.model import Post
from codebutler_worker.agents.backend import Finished, Started, Text
from codebutler_worker.conversation.publisher import MAX_ENVELOPES, SAID_ABOVE, TOO_MANY
from tests.shown import blocks_of, text_of
from tests.worker_kit import Parent, settings, worker


def markdown(post: Post) -> str:
    """What a post shows."""
    return "\n".join(block.get("text", "") for block in blocks_of(post) if block["type"] == "markdown")


def shown(parent: Parent) -> list[str]:
    return [markdown(post) for post in parent.posts if markdown(post)]


async def test_envelopes_are_posted_at_once_in_order_and_each_with_its_sign(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        kinds = ("", ":progress", ":question", ":warning", ":done", ":error", ":unheard")
        words = "".join(f"noise <<<SLACK{kind}>>>it is{kind}<<<END_SLACK>>> noise" for kind in kinds)
        run.does(Started("s"), Text(words))
        await parent.until(lambda: len(shown(parent)) == len(kinds))
        assert shown(parent) == [
            "it is",
            "🔄 it is:progress",
            "🤔 it is:question",
            "⚠️ it is:warning",
            "✅ it is:done",
            "❌ it is:error",
            "it is:unheard",
        ]
        assert {post.thread for post in parent.posts} == {"100.1"}
        run.does(Finished(True, words, "done"))
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert len(shown(parent)) == len(kinds) + 1
        assert shown(parent)[-1].startswith("noise  noise")


async def test_a_marker_may_be_cut_between_two_texts(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Text("<<<SLA"), Text("CK:done>>>all <b>well</b><<<end_"), Text("slack>>>"))
        await parent.until(lambda: shown(parent) == ["✅ all <b>well</b>"])
        run.finish("<<<SLACK:done>>>all <b>well</b><<<END_SLACK>>>")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert shown(parent)[-1].startswith(SAID_ABOVE)


async def test_what_is_not_closed_is_told_as_incomplete_in_time(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Text("<<<SLACK:question>>>shall I"))
        await parent.until(lambda: shown(parent) == ["🤔 ⚠️ (incomplete) shall I"], flow=True)
        run.does(Text("<<<SLACK>>>and at the end"))
        run.finish("Over.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert shown(parent)[1] == "⚠️ (incomplete) and at the end"


async def test_an_answer_without_any_envelope_is_an_answer(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        (await parent.run(0)).finish("Simply done.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        assert shown(parent)[-1].startswith("Simply done.")


async def test_envelopes_ping_nobody_and_hold_no_secret(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Text(f"<<<SLACK>>>@channel <!here> ghp_{'a' * 36}<<<END_SLACK>>>"))
        (said,) = await parent.until(lambda: shown(parent))
        assert "@channel" not in said
        assert "<!here>" not in said
        assert "ghp_" not in said
        run.finish()


async def test_a_flood_of_envelopes_ends(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("s"), Text("".join(f"<<<SLACK>>>{number}<<<END_SLACK>>>" for number in range(300))))
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        said = [post for post in parent.posts if not text_of(post).startswith("Done.")]
        assert len(said) == MAX_ENVELOPES
        assert text_of(said[-1]) == TOO_MANY
