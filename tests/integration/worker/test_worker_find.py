"""``!find``: past conversations by words, in a whole worker; ``!list`` with sessions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from codebutler.domain.model import Command, Prompt
from codebutler_worker.commands.find import IN_CHANNEL_ONLY, snippet
from codebutler_worker.commands.find import _pattern as pattern_of
from tests.events import posted
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

KEY = "sk-ant-0123456789abcdefghijklmnop"


async def talked(parent: Parent, ref: str, question: str, answer: str) -> None:
    number = len(parent.backend.runs)
    parent.says(question, ref)
    (await parent.run(number)).finish(answer)
    await parent.post_with(answer.split(maxsplit=1)[0])


async def found(parent: Parent, words: str, ref: str) -> str:
    """What is answered in the thread of ``ref``."""
    event = posted(channel=CHANNEL, ref=ref, user=USER, text=f"!find {words}")
    parent.deliver(event, Command(name="find", argument=words))
    posts = await parent.until(lambda: [post for post in parent.posts if post.thread == ref], flow=True)
    return text_of(posts[0])


async def test_questions_and_answers_are_found_with_links(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await talked(
            parent, "100.1", "why is the Café slow?", "Caching: the session.py lookup misses the cache."
        )
        await talked(parent, "200.1", "write a poem", "Roses are red.")
        said = await found(parent, "lookup session.p", "300.1")
        assert "/archives/C0REPO/p1001|why is the Café slow?>" in said
        assert "the *session.py* *lookup* misses" in said
        assert "poem" not in said
        assert "why is the Café *slow*?" in await found(parent, "cafe slow", "300.2"), "without its accent"
        assert "No conversation in this channel contains “zebra”" in await found(parent, "zebra", "300.3")
        assert "Say what to search for" in await found(parent, '"', "300.4")
        await talked(parent, "400.1", "paint a zebra", "Painted.")
        assert "paint a *zebra*" in await found(parent, "zebra", "500.1"), "what ended since"


async def test_nothing_in_the_words_is_an_operator(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await talked(parent, "100.1", "alpha beta", "Gamma.")
        for at, words in enumerate(
            ('alpha" OR "x', "alpha NOT beta", "question:alpha zeta", "alpha) (", "^ -")
        ):
            said = await found(parent, words, f"300.{at}")
            assert "alpha beta" not in said or words == "alpha) (", words
            assert "❌" not in said


async def test_each_conversation_is_shown_once_and_survives_a_restart(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await talked(parent, "100.1", "the parser", "Look.")
        parent.says("the parser again", "100.2", "100.1")
        (await parent.run(1)).finish("Parser done.")
        await parent.post_with("Parser done.")
    async with worker(settings(tmp_path)) as parent:
        said = await found(parent, "parser", "300.1")
        assert said.count("•") == 1
        for number in range(10):
            await talked(parent, f"40{number}.1", f"a parser, number {number}", f"Answer{number}.")
        said = await found(parent, "parser", "500.1")
        assert said.count("•") == 8
        assert said.endswith("add a word to narrow it down.")


async def test_no_secret_is_kept_in_the_index(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await talked(parent, "100.1", f"the key is {KEY} for staging", "Noted.")
        said = await found(parent, "staging", "300.1")
        assert KEY not in said
        assert KEY[:12] not in said
        assert "No conversation" in await found(parent, KEY[7:20], "300.2")


async def test_a_private_conversation_is_neither_searched_nor_found(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        event = posted(channel="D0ANA", ref="100.1", user=USER, text="my secret plan")
        parent.deliver(event, Prompt(text="my secret plan"))
        (await parent.run(0)).finish("Secret.")
        await parent.post_with("Secret.")
        event = posted(channel="D0ANA", ref="200.1", user=USER, text="!find plan")
        parent.deliver(event, Command(name="find", argument="plan"))
        await parent.post_with(IN_CHANNEL_ONLY)
        assert "No conversation" in await found(parent, "plan", "300.1")


async def test_the_list_names_the_session_of_each_conversation(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await talked(parent, "100.1", "paint it", "Painted.")
        parent.deliver(posted(channel=CHANNEL, ref="200.1", user=USER, text="!list"), Command(name="list"))
        assert "· `session-1`" in text_of(await parent.post_with("latest conversations"))


def test_a_snippet_shows_the_words_around_the_first_match() -> None:
    text = f"{'a ' * 100}the *needle* is\nhere {'b ' * 200}"
    said = snippet(text, pattern_of("need"))
    assert said.startswith("…")
    assert said.endswith("…")
    assert "the \\***needle**\\* is here" in said
    assert snippet("nothing", pattern_of("need")) == "nothing"
    assert (
        snippet("Ran `make`:\n\n```sh\nneedle\n```\n**Done**", pattern_of("need"))
        == "Ran make: **needle** Done"
    )


async def test_words_that_read_like_a_log_being_sent_do_not_keep_others_from_stopping(tmp_path: Path) -> None:
    """``!stop`` looks for logs among the commands that are not answered yet."""
    async with worker(settings(tmp_path)) as parent:
        await talked(parent, "100.1", "alpha beta", "Gamma.")
        for ref, name, words in (("300.1", "find", "part of the whole"), ("300.2", "stop", "all")):
            event = posted(channel=CHANNEL, ref=ref, user=USER, text=f"!{name} {words}")
            parent.deliver(event, Command(name=name, argument=words))
        await parent.post_with("Nothing to stop here.")
        await parent.post_with("No conversation in this channel contains")


@pytest.mark.parametrize("piece", ["\n", " ", " \n", "`", "``\n"])
def test_the_words_around_a_match_are_found_in_linear_time(piece: str) -> None:
    began_s = time.process_time()
    assert "**needle**" in snippet(f"a{piece * (100_000 // len(piece))} needle", pattern_of("needle"))
    assert time.process_time() - began_s < 1
