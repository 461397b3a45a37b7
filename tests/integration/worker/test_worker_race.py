"""A race: two agents do the same task in worktrees of their own, a card compares them, a person picks one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest

from codebutler.config.schema import (
    AuthorizationRule,
    AuthorizationSection,
    Check,
    ChecksSection,
    RepoSettings,
)
from codebutler.config.section import BudgetSection, DailyLimit
from codebutler.domain.model import Command, File
from codebutler.protocol.messages import Fetch, FileChunk
from codebutler_worker.agents.backend import Finished, Started, ToolUse, Usage
from tests.events import posted, slashed
from tests.racing import (
    DIFF,
    DISCARD,
    PICK,
    begun,
    both_done,
    card_now,
    card_of,
    changes,
    git,
    press,
    race,
    racers,
    say,
)
from tests.shown import text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

CHECKS = ChecksSection(commands=(Check(name="tests", command="make test"),))


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return begun(tmp_path)


async def test_both_work_apart_and_one_card_compares_them(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        race(parent)
        one, two = await racers(parent)
        told = text_of(await parent.post_with("each in its own worktree"))
        assert "`claude` and `rehearsal`" in told
        assert one.request.prompt == two.request.prompt == "Fix the login"
        assert len({repo, one.request.workdir, two.request.workdir}) == 3
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        (one.request.workdir / "new.py").write_text("1\n")
        changes(one, "one\n", "I wrote one.")
        changes(two, "two\ntwo\n", "I wrote two.")
        card = await card_of(parent)
        text = text_of(card)
        assert card.thread == "100.1"
        assert card.mention == USER
        assert "*1. `claude`* · ✅ done in" in text
        assert "*2 files changed* · +2 −1" in text
        assert "*2. `rehearsal`* · ✅ done in" in text
        assert "*1 file changed* · +2 −1" in text
        assert "> I wrote one." in text
        assert "$0.12" in text
        labels = [button.label for button in card.message.buttons]
        assert labels == ["Diff claude", "Pick claude", "Diff rehearsal", "Pick rehearsal", "Discard both"]
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert (repo / "app.py").read_text() == "print('hello')\n"
        # The card stands for the answers, and for what else would be told of each.
        assert [text_of(post) for post in parent.posts if "I wrote" in text_of(post)] == [text]
        assert not [post for post in parent.posts if "own worktree, on branch" in text_of(post)]
        press(parent, card, DIFF, 1)
        assert "+two" in text_of(await parent.post_with("-print('hello')"))


async def test_each_is_shown_at_work_under_its_name(repo: Path) -> None:
    async with worker(settings(repo, verbosity="normal")) as parent:
        race(parent)
        one, two = await racers(parent)
        await parent.post_with("claude is working")
        await parent.post_with("rehearsal is working")
        one.does(ToolUse("1", "Read", "app.py"))
        await parent.until(lambda: _edited(parent, "`claude` · 🔧 `Read: app.py`"), flow=True)
        changes(one, "one\n")
        await parent.until(lambda: _edited(parent, "`claude` · ✅ Done · 1 tool call"), flow=True)
        two.does(Started("s"), Finished(ok=False, text="No.", reason="failed"))
        await parent.until(lambda: _edited(parent, "`rehearsal` · ❌"), flow=True)


def _edited(parent: Parent, text: str) -> bool:
    return any(text in text_of(edit) for edit in parent.updates)


async def test_a_pick_merges_one_and_its_session_goes_on_in_the_thread(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        card = await both_done(parent)
        one, two = parent.backend.runs
        press(parent, card, PICK, 1)
        press(parent, card, PICK, 0, moment="2")
        await parent.until(lambda: "Removed the work of" in card_now(parent).markdown, flow=True)
        told = text_of(card_now(parent))
        assert "picked `rehearsal`. Merged `codebutler/fix-login-" in told
        assert "into `main`: 1 file changed" in told
        assert "Replies in this thread continue with it." in told
        assert "Removed the work of `claude`" in told
        assert card_now(parent).buttons == ()
        assert (repo / "app.py").read_text() == "two\n"
        assert git(repo, "log", "-1", "--format=%s") == "Fix the login\n"
        ref = told.partition("NAME ")[2].partition("`")[0]
        assert git(repo, "show", f"{ref}:app.py") == "one\n"
        await parent.until(
            lambda: not (one.request.workdir.exists() or two.request.workdir.exists()), flow=True
        )
        parent.says("And now the logout", "100.2", "100.1")
        run = await parent.run(2)
        assert run.request.workdir == repo
        assert run.request.session_id == "session-two"
        assert run.request.prompt.startswith(f"From now on you work in {repo}.")
        assert parent.backend.chosen[-1][0] == "rehearsal"
        run.finish()
        parent.says("Thanks", "100.3", "100.1")
        last = await parent.run(3)
        assert last.request.prompt == "Thanks"
        last.finish()


async def test_where_both_are_discarded_a_copy_stays(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        card = await both_done(parent)
        press(parent, card, DISCARD)
        await parent.until(lambda: card_now(parent).markdown.count("Removed the work of") == 2, flow=True)
        assert (repo / "app.py").read_text() == "print('hello')\n"
        assert git(repo, "worktree", "list").count("\n") == 1
        assert "codebutler/" not in git(repo, "branch", "--list")
        await parent.until(parent.is_idle, flow=True)
        press(parent, card, PICK)
        await parent.until(lambda: any(post.only_for == USER for post in parent.posts), flow=True)
        assert (repo / "app.py").read_text() == "print('hello')\n"


async def test_the_same_checks_run_on_both(repo: Path) -> None:
    async with worker(settings(repo, checks=CHECKS)) as parent:
        race(parent)
        one, two = await racers(parent)
        changes(one, "one\n")
        changes(two, "two\n")
        first = await parent.run(2)
        assert (first.request.prompt, first.request.workdir) == ("make test", one.request.workdir)
        first.does(Started(""), Finished(ok=True, text="", reason="done", exit_code=0))
        second = await parent.run(3)
        assert second.request.workdir == two.request.workdir
        second.does(Started(""), Finished(ok=False, text="1 failed", reason="failed", exit_code=2))
        text = text_of(await card_of(parent))
        assert text.index("✅ `tests` passed") < text.index("❌ `tests` failed (exit code 2)")


async def test_one_that_fails_does_not_keep_the_other(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        race(parent)
        one, two = await racers(parent)
        one.does(Started("s"), Finished(ok=False, text="The key is *wrong*.", reason="auth"))
        changes(two, "two\n")
        card = await card_of(parent)
        text = text_of(card)
        assert "*1. `claude`* · ❌ failed after" in text
        assert "The key is" in text
        assert "It changed no files." in text
        assert [each.label for each in card.message.buttons] == [
            "Diff rehearsal",
            "Pick rehearsal",
            "Discard both",
        ]
        assert not [post for post in parent.posts if "❌" in text_of(post) and post is not card]
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_where_both_fail_the_card_has_nothing_to_press(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        race(parent)
        for run in await racers(parent):
            # A limit that is over tomorrow holds nobody up.
            run.does(
                Started("s"),
                Finished(ok=False, text="Usage limit reached.", reason="limit", resets_at_s=9e9),
            )
        card = await card_of(parent)
        assert "Neither of them changed anything." in text_of(card)
        assert card.message.buttons == ()
        await parent.until(lambda: parent.reactions("100.1") == ["x"], flow=True)
        await parent.until(parent.is_idle, flow=True)


async def test_stop_ends_both_and_the_card_still_comes(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        race(parent)
        one, _ = await racers(parent)
        (one.request.workdir / "app.py").write_text("half\n")
        one.does(Started("s"))
        await parent.until(lambda: parent.reactions("100.1") == ["eyes"], flow=True)
        say(parent, "stop", "100.2")
        await parent.post_with("Stopping 2 runs.")
        card = await card_of(parent)
        assert text_of(card).count("🛑 stopped after") == 2
        assert [each.label for each in card.message.buttons] == ["Diff claude", "Pick claude", "Discard both"]
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)


async def test_stop_during_the_checks_brings_the_card_without_them(repo: Path) -> None:
    async with worker(settings(repo, checks=CHECKS)) as parent:
        race(parent)
        for run in await racers(parent):
            changes(run, "one\n")
        await parent.run(2)
        say(parent, "stop", "100.2")
        await parent.post_with("Stopped the checks.")
        assert text_of(await card_of(parent)).count("The checks were stopped.") == 2
        assert len(parent.backend.runs) == 3


async def test_what_is_said_in_the_thread_waits_until_both_have_ended(repo: Path) -> None:
    async with worker(settings(repo, parallel_turns=3)) as parent:
        race(parent)
        one, two = await racers(parent)
        parent.says("And the tests", "100.2", "100.1")
        await parent.until(lambda: parent.reactions("100.2") == ["hourglass_flowing_sand"], flow=True)
        changes(one, "one\n")
        changes(two, "two\n")
        later = await parent.run(2)
        assert later.request.workdir == repo
        later.finish()


async def test_unsaved_work_in_the_repository_is_not_touched(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        card = await both_done(parent)
        (repo / "app.py").write_text("mine\n")
        press(parent, card, PICK)
        told = text_of(await parent.post_with("was not merged"))
        assert "uncommitted changes in `app.py`" in told
        assert (repo / "app.py").read_text() == "mine\n"
        git(repo, "checkout", "-q", "app.py")
        await parent.until(lambda: len(card_now(parent).buttons) == 5, flow=True)
        press(parent, card_now(parent), PICK, moment="2")
        await parent.until(lambda: "picked `claude`" in card_now(parent).markdown, flow=True)
        assert (repo / "app.py").read_text() == "one\n"


async def test_a_conflict_is_the_agents_next_task_and_the_card_waits(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        card = await both_done(parent)
        (repo / "app.py").write_text("ours\n")
        git(repo, "commit", "-qam", "in main")
        press(parent, card, PICK)
        told = text_of(await parent.post_with("conflicts with `main` in `app.py`"))
        assert "press *Pick* again when it is done" in told
        run = await parent.run(2)
        assert run.request.workdir == (await racers(parent))[0].request.workdir
        git(run.request.workdir, "merge", "-q", "-X", "ours", "main")
        run.finish("Resolved.")
        await parent.post_with("Resolved.")
        await parent.until(parent.is_idle, flow=True)
        press(parent, card_now(parent), PICK, moment="2")
        await parent.until(lambda: "picked `claude`" in card_now(parent).markdown, flow=True)
        assert (repo / "app.py").read_text() == "one\n"


def ruled(repo: Path, *prefixes: str) -> RepoSettings:
    told = settings(repo)
    rules = (
        AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude", "rehearsal")),
        AuthorizationRule(channels=(CHANNEL,), users=("U0EVE",), allowed_prefixes=prefixes),
    )
    config = msgspec.structs.replace(told.config, authorization=AuthorizationSection(rules=rules))
    return msgspec.structs.replace(told, config=config)


async def test_who_may_not_use_an_agent_starts_picks_and_discards_nothing(repo: Path) -> None:
    async with worker(ruled(repo, "claude")) as parent:
        race(parent, user="U0EVE")
        await parent.post_with("You are not authorized to use `rehearsal:`")
        assert parent.backend.runs == []
    async with worker(ruled(repo, "claude")) as parent:
        race(parent, "100.2")
        one, two = await racers(parent)
        changes(one, "one\n")
        changes(two, "two\n")
        card = await card_of(parent)
        press(parent, card, PICK, 1, user="U0EVE")
        press(parent, card, DISCARD, user="U0EVE")
        refusals = partial(_count, parent, "You are not authorized to use `rehearsal:`")
        await parent.until(lambda: refusals() == 2, flow=True)
        assert (repo / "app.py").read_text() == "print('hello')\n"
        assert two.request.workdir.exists()


async def test_a_threads_budget_counts_both_and_holds_up_neither(repo: Path) -> None:
    told = settings(repo)
    budget = BudgetSection(thread=DailyLimit(usd_per_day=0.2))
    told = msgspec.structs.replace(told, config=msgspec.structs.replace(told.config, budget=budget))
    async with worker(told) as parent:
        for run in await _raced(parent, "100.1"):
            changes(run, "one\n")
        await card_of(parent)
        parent.says("And the tests", "100.2", "100.1")
        await parent.post_with("This thread's budget for today is used up")
        race(parent, "100.3", thread="100.1")
        await parent.post_with("did not start")
        assert len(parent.backend.runs) == 2


def _count(parent: Parent, text: str) -> int:
    return sum(text in text_of(post) for post in parent.posts)


async def _raced(parent: Parent, ref: str) -> tuple[Run, Run]:
    race(parent, ref)
    return await racers(parent)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("claude kimi: Fix it", "`kimi` is not ready here: install it."),
        ("Fix it", "A race needs two agents, and only `claude` is ready here."),
        ("claude claude: Fix it", "A race needs two different agents"),
        ("claude klaude: Fix it", "There is no agent `klaude` here"),
    ],
)
async def test_without_two_agents_there_is_no_race(repo: Path, argument: str, told: str) -> None:
    async with worker(settings(repo)) as parent:
        race(parent, argument=argument)
        await parent.post_with(told)
        assert parent.backend.runs == []
        assert parent.reactions("100.1") in ([], ["x"])


async def test_longer_answers_than_the_card_shows_come_with_the_pick(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        race(parent)
        one, two = await racers(parent)
        one.finish("First.\n\n" + "word " * 200 + "last", "session-one")
        two.does(Started("s"), Finished(True, "Short.", "done", Usage(1, 2, 0.1, 1), 0.1))
        card = await card_of(parent)
        assert "last" not in text_of(card)
        assert [each.label for each in card.message.buttons] == [
            "Pick claude",
            "Pick rehearsal",
            "Discard both",
        ]
        press(parent, card, PICK)
        await parent.post_with("word last")
        assert "It changed no files, so there was nothing to merge." in text_of(card_now(parent))


async def test_both_get_the_files_and_what_was_said_before(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        parent.says("Where is the login?", "100.1", prefix="rehearsal")
        (await parent.run(0)).finish("In app.py.", "session-0")
        await parent.until(parent.is_idle, flow=True)
        file = File(id="F1", name="spec.txt", mimetype="text/plain", size_bytes=5)
        event = posted(channel=CHANNEL, ref="100.2", user=USER, text="!race …", thread="100.1", files=(file,))
        parent.deliver(event, Command(name="race", argument="claude rehearsal: Do as the file says"))
        fetches = await parent.until(lambda: parent.said(Fetch)[1:] and parent.said(Fetch), flow=True)
        for fetch in fetches:
            parent.channel.send(FileChunk(request_id=fetch.request_id, data=b"hello", last=True))
        for run in (await parent.run(1), await parent.run(2)):
            prompt = run.request.prompt
            assert "> In app.py." in prompt
            assert "Do as the file says" in prompt
            assert f"[attached file: {run.request.workdir}/.codebutler/files/" in prompt
            run.finish()
        await card_of(parent)


async def test_after_a_pick_the_thread_has_its_run(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        card = await both_done(parent)
        press(parent, card, PICK, 1)
        await parent.until(lambda: "Removed the work of" in card_now(parent).markdown, flow=True)
        say(parent, "output", "100.2")
        await parent.until(lambda: _count(parent, "I wrote two.") == 2, flow=True)
        say(parent, "undo", "100.3")
        assert "Undo 1 file" in [each.label for each in (await parent.post_with("↩ Undo")).message.buttons]
        say(parent, "race", "100.4")
        await parent.post_with("!race [AGENT AGENT:] TASK")


async def test_a_slash_command_races_in_the_channel(repo: Path) -> None:
    async with worker(settings(repo)) as parent:
        event = slashed(
            channel=CHANNEL,
            user=USER,
            command="/butler",
            text="race claude rehearsal: Fix it",
            invocation="1",
        )
        parent.deliver(event, Command(name="race", argument="claude rehearsal: Fix the login"))
        one, two = await racers(parent)
        changes(one, "one\n")
        changes(two, "two\n")
        card = await card_of(parent)
        assert (card.thread, card.only_for) == (None, "")
        press(parent, card, PICK)
        await parent.until(lambda: "Removed the work of" in card_now(parent).markdown, flow=True)
        assert (repo / "app.py").read_text() == "one\n"
        assert "Replies in this thread" not in card_now(parent).markdown


async def test_where_the_channel_is_one_conversation_a_race_is_beside_it(repo: Path) -> None:
    async with worker(settings(repo, scope="channel")) as parent:
        parent.says("Where is the login?", "50.1")
        (await parent.run(0)).finish("In app.py.", "session-0")
        await parent.until(parent.is_idle, flow=True)
        race(parent)
        one, two = await racers(parent, 1)
        changes(one, "one\n", session="session-one")
        changes(two, "two\n", session="session-two")
        card = await card_of(parent)
        parent.says("Thanks", "60.1")
        between = await parent.run(3)
        assert (between.request.session_id, between.request.workdir) == ("session-0", repo)
        between.finish(session_id="session-0")
        press(parent, card, PICK, 1)
        await parent.until(lambda: "Removed the work of" in card_now(parent).markdown, flow=True)
        parent.says("And now?", "70.1")
        after = await parent.run(4)
        assert after.request.session_id == "session-two"
        assert f"From now on you work in {repo}." in after.request.prompt
        after.finish()
