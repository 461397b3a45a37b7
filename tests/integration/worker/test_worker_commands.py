"""Our own words in a whole worker: what each does, said anywhere, while a turn runs, and said wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.domain.model import (
    Command,
    Post,
    Prompt,
    Upload,
)
from codebutler_worker.agents.backend import Finished, Started
from tests.events import clicked, edited, posted, slashed
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker


def command(
    parent: Parent, name: str, ts: str, thread_ts: str | None = None, argument: str = "", user: str = USER
) -> int:
    text = f"!{name} {argument}".strip()
    event = posted(channel=CHANNEL, ref=ts, user=user, text=text, thread=thread_ts)
    return parent.deliver(event, Command(name=name, argument=argument))


def slash(parent: Parent, name: str, argument: str = "") -> int:
    event = slashed(
        channel=CHANNEL, user=USER, command="/butler", text=f"{name} {argument}", invocation=f"t-{name}"
    )
    return parent.deliver(event, Command(name=name, argument=argument))


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("help", "", "`!status`"),
        ("help", "", "Slash commands may not work in threads"),
        ("help", "stop", "`!stop [all]`: stop running"),
        ("help", "stpo", "Did you mean `!help stop`?"),
        ("ping", "", "pong from sample"),
        ("status", "", "*sample*: 0 running, 0 waiting, 0 queued"),
        ("status", "", "Today: 0 runs · sandbox"),
        ("list", "", "No conversations here yet"),
        ("new", "", "starts a new conversation"),
        ("continue", "", "Nothing here was interrupted"),
        ("reset", "", "in the thread"),
        ("stop", "", "Nothing to stop here."),
        ("kill", "", "Nothing to stop here."),
        ("output", "", "No run here has produced"),
        ("c", "", "`!c COMMAND`"),
        ("create-image", "", "`!create-image DESCRIPTION`"),
        ("memory", "", "I remember nothing here yet."),
        ("skills", "", "• `review-diff` Review a change"),
        ("agents", "", "✅ `claude:` Claude Code 1.2.3 · the default here"),
        ("agents", "", "❌ `kimi:` Kimi Code · install it"),
        ("diff", "", "not a git repository"),
        ("undo", "", "nothing to undo here"),
        ("checks", "now", "`!checks` takes no argument"),
        ("statsu", "", "Did you mean `!status`?"),
        ("xyzzy", "", "`!help` lists the commands"),
        ("ping", "pong", "`!ping` takes no argument"),
        ("stop", "everything", "`!stop [all]`"),
    ],
)
async def test_a_word_is_answered_in_its_thread_without_a_turn(
    tmp_path: Path, name: str, argument: str, expected: str
) -> None:
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(command(parent, name, "100.1", argument=argument))
        post = await parent.post_with(expected)
        assert post.thread == "100.1"
        assert not post.only_for
        assert parent.backend.runs == []
        assert "not available" not in str(parent.operations)


async def test_words_work_while_a_turn_runs(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("fix <!channel> it", "100.1")
        run = await parent.run(0)
        command(parent, "status", "200.1")
        status = await parent.post_with("1 running, 0 waiting, 0 queued")
        assert "👀 running · claude · <https://slack.com/archives/C0REPO/p1001|fix" in text_of(status)
        assert "<!channel>" not in text_of(status)
        command(parent, "undo", "200.2", "100.1")
        await parent.post_with("An agent is running")
        command(parent, "output", "200.3", "100.1")
        await parent.post_with("claude is still working.")
        command(parent, "continue", "200.4", "100.1")
        await parent.post_with("It is already running.")
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        command(parent, "list", "300.1")
        assert "✅ done · claude · <" in text_of(await parent.post_with("latest conversations"))
        command(parent, "status", "300.2")
        await parent.post_with("Today: 1 run, 46 tokens, $0.12")


async def test_reset_forgets_the_session(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("first", "100.1")
        (await parent.run(0)).finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        await parent.stored(command(parent, "reset", "100.2", "100.1"))
        parent.says("second", "100.3", "100.1")
        assert (await parent.run(1)).request.session_id is None


async def test_stop_all_in_a_thread_stops_another_and_says_who(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("long work", "100.1")
        await parent.run(0)
        command(parent, "stop", "200.2", "200.1")
        await parent.post_with("`!stop all` stops that too")
        command(parent, "stop", "200.3", "200.1", "all")
        assert (await parent.post_with(f"Stopped by <@{USER}>")).thread == "100.1"
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])


async def test_kill_does_not_ask(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.backend.obeys_stop = False
        parent.says("long work", "100.1")
        run = await parent.run(0)
        command(parent, "kill", "100.2", "100.1")
        await parent.post_with("🛑 Killing 1 run.")
        # The clock stands still: no grace has to pass.
        await parent.until(run.closed.is_set)
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])


async def test_output_says_the_last_answer_again_as_a_file_when_it_is_long(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("explain", "100.1")
        (await parent.run(0)).finish("word " * 4000)
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        sent = len(parent.operations)
        command(parent, "output", "100.2", "100.1")
        await parent.post_with("done: claude, explain")
        files = await parent.until(
            lambda: [each for each in parent.operations[sent:] if isinstance(each, Upload)]
        )
        assert files[0].content.decode().count("word") == 4000


async def test_what_was_stopped_goes_on_in_its_session(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("paint it red", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"))
        command(parent, "stop", "100.2", "100.1")
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"])
        command(parent, "continue", "100.3", "100.1")
        request = (await parent.run(1)).request
        assert request.session_id == "session-1"
        assert "A person stopped your last run" in request.prompt
        await parent.until(lambda: "eyes" in parent.reactions("100.1"), flow=True)
        parent.backend.runs[1].finish("Red.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"])
        command(parent, "continue", "100.4", "100.1")
        await parent.post_with("Nothing was interrupted here")


async def test_continue_outside_threads_goes_on_with_the_one_that_can(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.says("work", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), Finished(False, "Reached its limit.", "max_turns"))
        await parent.until(lambda: parent.reactions("100.1") == ["x"])
        command(parent, "continue", "200.1")
        assert (await parent.post_with("Continuing")).thread == "200.1"
        assert (await parent.run(1)).request.session_id == "session-1"
        # The card that offered it says so, without its button.
        await parent.until(lambda: any("Continued" in text_of(update) for update in parent.updates))


async def test_continue_asks_which_one_if_there_are_several(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        for number in range(2):
            parent.says(f"work {number}", f"10{number}.1")
            (await parent.run(number)).does(Started("s"), Finished(False, "Limit.", "timeout"))
            await parent.until(lambda n=number: parent.reactions(f"10{n}.1") == ["x"])  # type: ignore[misc]  # defaults of a lambda
        command(parent, "continue", "200.1")
        card = await parent.post_with("work 0")
        button = blocks_of(card)[1]["elements"][0]
        assert (button["action_id"], card.thread) == ("codebutler.retry", "200.1")
        click = clicked(
            channel=CHANNEL, user=USER, message="9.9", action_id="codebutler.retry", value=button["value"],
            press="201.0",
        )  # fmt: skip
        parent.deliver(click)
        assert (await parent.run(2)).request.conversation == f"{CHANNEL}:100.1"


async def test_a_slash_command_is_answered_for_its_user_alone(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        slash(parent, "ping")
        pong = await parent.post_with("pong")
        assert (pong.thread, pong.only_for) == (None, USER)
        slash(parent, "agents")
        assert (await parent.post_with("Available agents")).only_for == USER
        slash(parent, "nosuch")
        assert (await parent.post_with("Unknown command")).only_for == USER
        slash(parent, "continue")
        assert not (await parent.post_with("Nothing here was interrupted")).only_for
        event = slashed(channel=CHANNEL, user=USER, command="/butler", text="hi", invocation="t2")
        parent.deliver(event, Prompt(text="hi", prefix="claude"))
        (await parent.run(0)).finish("Hello.")
        answer = await parent.post_with("Hello.")
        assert (answer.thread, answer.only_for) == (None, "")


async def test_an_edit_into_a_command_withdraws_the_message(tmp_path: Path) -> None:
    async with worker(settings(tmp_path, debounce_s=3)) as parent:
        parent.says("statsu", "100.1")
        edit = edited(channel=CHANNEL, ref="100.1", user=USER, text="!ping", edit="101.0")
        parent.deliver(edit, Command(name="ping"))
        await parent.post_with("pong")
        await parent.until(lambda: parent.reactions("100.1") == [])
        await parent.until(parent.is_idle, flow=True)
        assert parent.backend.runs == []


async def test_an_edit_mends_a_word_that_was_not_understood_once(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        command(parent, "pnig", "100.1")
        await parent.post_with("Unknown command")

        def edit(text: str, name: str, edited_ts: str, user: str = USER) -> int:
            event = edited(channel=CHANNEL, ref="100.1", user=user, text=text, edit=edited_ts)
            return parent.deliver(event, Command(name=name))

        await parent.stored(edit("!ping", "ping", "101.0", user="U0MALLORY"))
        await parent.stored(edit("!pign", "pign", "102.0"))
        await parent.until(lambda: sum("Unknown command" in text_of(post) for post in parent.posts) == 2)
        edit("!ping", "ping", "103.0")
        assert (await parent.post_with("pong")).thread == "100.1"
        await parent.stored(edit("!ping", "ping", "104.0"))
        await parent.stored(parent.says("x", "900.1"))
        assert sum("pong" in text_of(post) for post in parent.posts) == 1


async def test_an_edit_mends_a_misspelt_word_into_a_prompt(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        command(parent, "fixit", "100.1")
        await parent.post_with("Unknown command")
        event = edited(channel=CHANNEL, ref="100.1", user=USER, text="fix it", edit="101.0")
        parent.deliver(event, Prompt(text="fix it"))
        assert (await parent.run(0)).request.prompt == "fix it"


async def test_memory_shows_what_every_session_is_told(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        (tmp_path / ".codebutler" / "memory.md").write_text("- use tabs\n- never ``` here\n")
        command(parent, "memory", "100.1")
        told = text_of(await parent.post_with("Every new session gets"))
        assert "1. use tabs\n2. never ''' here\n" in told


async def test_an_answer_under_way_at_a_death_comes_with_the_next_life(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        parent.backend.survey_waits = True
        await parent.stored(command(parent, "agents", "100.1"))
    async with worker(settings(tmp_path)) as parent:
        assert (await parent.post_with("Available agents")).thread == "100.1"
        assert sum(isinstance(each, Post) for each in parent.operations) == 1
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.says("x", "900.1"))
        assert not [post for post in parent.posts if "Available agents" in text_of(post)]
