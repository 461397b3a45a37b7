"""Cards with several requests, several deciders, and requests that go away by themselves."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from codebutler.config.schema import ApprovalsSection, RepoSettings
from codebutler.domain.model import OPERATOR, Post, Prompt, Update, Upload
from codebutler.protocol.messages import Heartbeat
from codebutler_worker.agents.backend import Approval, Finished, Question, Started, Withdrawn
from tests.events import clicked, posted
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, settings, worker

FIRST = Approval("req-1", "Bash", "touch a", {"command": "touch a"})
SECOND = Approval("req-2", "Bash", "touch b", {"command": "touch b"})
PUSH = Approval("req-1", "Bash", "git push", {"command": "git push origin main"})
PLAN = Approval("req-1", "ExitPlanMode", "", {"plan": "1. **look**\n2. mend"})
BEN, CARL = "U0BEN", "U0CARL"


def buttons(shown: Post | Update) -> dict[str, tuple[str, str]]:
    """(action_id, value) by label; of a row of the same labels the last."""
    elements = [one for block in blocks_of(shown) for one in block.get("elements", [])]
    return {element["text"]["text"]: (element["action_id"], element["value"]) for element in elements}


def press(parent: Parent, button: tuple[str, str], at: str, *, user: str = USER, name: str = "") -> int:
    event = clicked(
        channel=CHANNEL,
        user=user,
        message="9000.000001",
        action_id=button[0],
        value=button[1],
        press=at,
        thread="100.1",
        user_name=name,
    )
    return parent.deliver(event)


async def asks(parent: Parent, *asked: Approval | Question) -> Run:
    parent.says("go", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"), *asked)
    await parent.until(lambda: parent.said(Heartbeat)[-1].waiting == 1)
    return run


async def update_with(parent: Parent, *texts: str) -> Update:
    """The card once it says all of this."""

    def look() -> list[Update]:
        return [one for one in parent.updates if all(text in text_of(one) for text in texts)]

    return (await parent.until(look, flow=True))[-1]


def answered(parent: Parent) -> list[tuple[str, bool]]:
    return [(id_, answer.allow) for id_, answer in parent.backend.answers]


def with_quorum(
    repo: Path, *, requester_votes: bool = False, operator: str = "", **quorum: int
) -> RepoSettings:
    plain = settings(repo)
    section = ApprovalsSection(
        quorum={words.replace("_", " "): people for words, people in quorum.items()},
        requester_votes=requester_votes,
        operator=operator,
    )
    return msgspec.structs.replace(plain, config=msgspec.structs.replace(plain.config, approvals=section))


async def test_requests_within_two_seconds_share_a_card(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST, SECOND)
        card = await update_with(parent, "touch a", "touch b")
        assert len(parent.posts) == 1
        press(parent, buttons(card)["Allow all 2"], "500.1", name="ana")
        await parent.until(lambda: len(answered(parent)) == 2)
        assert sorted(answered(parent)) == [("req-1", True), ("req-2", True)]
        closed = await update_with(parent, "✅ Allowed by ana.\n🔐")
        assert buttons(closed) == {}
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)


async def test_each_request_of_a_card_is_decided_by_itself(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, FIRST, SECOND)
        card = await update_with(parent, "touch a", "touch b")
        press(parent, buttons(card)["Deny"], "500.1")
        rest = await update_with(parent, "🚫 Denied by")
        await parent.until(lambda: answered(parent) == [("req-2", False)])
        assert parent.said(Heartbeat)[-1].waiting == 1
        press(parent, buttons(rest)["Allow"], "500.2")
        await parent.until(lambda: len(answered(parent)) == 2)
        assert answered(parent)[1] == ("req-1", True)


async def test_allow_all_covers_what_the_card_showed_and_no_more(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST, SECOND)
        card = await update_with(parent, "touch b")
        run.does(Approval("req-3", "Bash", "rm", {"command": "rm -rf ."}))
        await update_with(parent, "rm -rf .")
        press(parent, buttons(card)["Allow all 2"], "500.1")  # by somebody who has not seen the third
        await parent.until(lambda: len(answered(parent)) == 2)
        press(parent, buttons(card)["Allow all 2"], "500.2")  # once more
        await parent.post_with("Already decided by")
        assert sorted(answered(parent)) == [("req-1", True), ("req-2", True)]
        assert parent.said(Heartbeat)[-1].waiting == 1


async def test_a_later_request_has_a_card_of_its_own(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST)
        await parent.clock.advance(3)
        run.does(SECOND)
        await parent.until(lambda: len(parent.posts) == 2)
        assert "touch b" in text_of(parent.posts[1])


async def test_what_the_agent_takes_back_is_closed(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST, Question("req-9#0", "Which?", ("A",)), Question("req-9#1", "And?"))
        card = await parent.post_with("touch a")
        run.does(Withdrawn("req-1"), Withdrawn("req-9"), Withdrawn("unheard of"))
        await update_with(parent, "withdrew this")
        await parent.until(
            lambda: len([one for one in parent.updates if "withdrew this" in text_of(one)]) == 3
        )
        await parent.until(lambda: parent.said(Heartbeat)[-1].running == 1)
        press(parent, buttons(card)["Allow"], "500.1")
        await parent.post_with("That card is closed. It was NOT run.")
        assert answered(parent) == []


async def test_two_people_have_to_allow_and_are_named(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        await asks(parent, PUSH)
        card = await parent.post_with("2 approvals needed; 0 given.")
        assert list(buttons(card)) == ["Allow", "Deny", "Deny with a reason…"]
        press(parent, buttons(card)["Allow"], "500.1", user=CARL, name="carl")
        await update_with(parent, "2 approvals needed; 1 given: carl.")
        press(parent, buttons(card)["Allow"], "500.2", user=CARL, name="carl")
        await parent.post_with("carl, you have already approved this")
        assert answered(parent) == []
        press(parent, buttons(card)["Allow"], "500.3", user=BEN, name="ben")
        await update_with(parent, "✅ Allowed by carl and ben.")
        await parent.until(lambda: answered(parent) == [("req-1", True)])


async def test_whoever_asked_is_none_of_several(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        await asks(parent, PUSH)
        allow = buttons(await parent.post_with("2 approvals needed; 0 given."))["Allow"]
        press(parent, allow, "500.1", name="ana")
        await parent.post_with("ana, you asked for this, so your approval does not count")
        parent.says("yes", "9900.1", "100.1")
        await parent.until(lambda: len([p for p in parent.posts if "you asked for this" in text_of(p)]) == 2)
        press(parent, allow, "500.2", user=BEN, name="ben")
        await update_with(parent, "1 given: ben.")
        assert answered(parent) == []


async def test_whoever_asked_is_one_of_several_where_a_setting_says_so(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2, requester_votes=True)) as parent:
        await asks(parent, PUSH)
        allow = buttons(await parent.post_with("2 approvals needed; 0 given."))["Allow"]
        press(parent, allow, "500.1", name="ana")
        press(parent, allow, "500.2", user=BEN, name="ben")
        await parent.until(lambda: answered(parent) == [("req-1", True)])


async def test_the_terminal_and_slack_are_not_two_people(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        await asks(parent, PUSH)
        allow = buttons(await parent.post_with("2 approvals needed; 0 given."))["Allow"]
        press(parent, allow, "500.1", user=BEN, name="ben")
        press(parent, allow, "500.2", user=OPERATOR, name=OPERATOR)
        await parent.post_with("set `approvals.operator` to your user ID there")
        parent.says("yes", "9900.1", "100.1", user=OPERATOR)
        await parent.until(
            lambda: len([p for p in parent.posts if "`approvals.operator`" in text_of(p)]) == 2
        )
        assert answered(parent) == []
        press(parent, allow, "500.3", user=CARL, name="carl")
        await parent.until(lambda: answered(parent) == [("req-1", True)])


async def test_an_operator_with_a_name_in_slack_is_that_person(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2, operator=BEN)) as parent:
        await asks(parent, PUSH)
        allow = buttons(await parent.post_with("2 approvals needed; 0 given."))["Allow"]
        press(parent, allow, "500.1", user=BEN, name="ben")
        press(parent, allow, "500.2", user=OPERATOR, name=OPERATOR)
        await parent.post_with("you have already approved this")
        assert answered(parent) == []
        press(parent, allow, "500.3", user=CARL, name="carl")
        await parent.until(lambda: answered(parent) == [("req-1", True)])


async def test_a_grant_of_one_person_is_not_enough_where_two_are_needed_now(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, PUSH)
        press(parent, buttons(await parent.post_with("git push"))["Allow for this session"], "500.1")
        await parent.until(lambda: answered(parent) == [("req-1", True)])
        run.does(Finished(True, "Done.", "done"))
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        parent.says("again", "200.1", "100.1")
        (await parent.run(0)).does(Started("session-1"), PUSH)
        await parent.post_with("2 approvals needed; 0 given.")
        assert answered(parent) == []


async def test_who_pressed_once_is_named_when_writing_too(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST)
        press(parent, buttons(await parent.post_with("touch a"))["Allow"], "500.1", name="ana")
        await update_with(parent, "Allowed by ana.")
        run.does(SECOND)
        await parent.post_with("touch b")
        parent.says("yes", "9900.1", "100.1")
        await update_with(parent, "touch b", "Allowed by ana.")


async def test_who_only_wrote_is_named_by_the_mention_that_slack_shows_as_the_name(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST)
        await parent.post_with("touch a")
        parent.says("yes", "9900.1", "100.1")
        card = await update_with(parent, f"Allowed by <@{USER}>.")
        assert card.message.names == (USER,)
        run.does(Question("req-9", "Which?"))
        await parent.post_with("Which?")
        parent.says("this <@U0EVE>", "9900.2", "100.1")
        card = await update_with(parent, f"💬 <@{USER}>: this")
        assert "<@U0EVE>" not in text_of(card)


async def test_one_no_is_enough_and_no_session_gets_around_it(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        await asks(parent, PUSH)
        card = await parent.post_with("2 approvals")
        approval_id = buttons(card)["Allow"][1]
        await parent.stored(press(parent, ("codebutler.allow_session", approval_id), "500.1"))
        press(parent, buttons(card)["Allow"], "500.2", user=BEN)
        await update_with(parent, "1 given")
        press(parent, buttons(card)["Deny"], "500.3", user=CARL, name="carl")
        await update_with(parent, "🚫 Denied by carl.")
        await parent.until(lambda: answered(parent) == [("req-1", False)])


async def test_votes_outlive_the_card_of_a_dead_worker_as_nothing(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        await asks(parent, PUSH)
        card = await parent.post_with("2 approvals")
        press(parent, buttons(card)["Allow"], "500.1", user=CARL)
        await update_with(parent, "1 given")
    async with worker(with_quorum(tmp_path, git_push=2)) as parent:
        await update_with(parent, "NOT run")
        press(parent, buttons(card)["Allow"], "500.2", user=BEN)
        await parent.post_with("That card is closed. It was NOT run.")
        assert parent.backend.runs == []


async def test_a_grant_for_a_session_outlives_its_worker(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, FIRST)
        card = await parent.post_with("touch a")
        press(parent, buttons(card)["Allow for this session"], "500.1")
        await parent.until(lambda: answered(parent) == [("req-1", True)])
        run.does(Finished(True, "Done.", "done"))
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
    async with worker(settings(tmp_path)) as parent:
        parent.says("again", "200.1", "100.1")
        run = await parent.run(0)
        run.does(Started("session-1"), replace(FIRST, id="req-7"))
        await parent.until(lambda: answered(parent) == [("req-7", True)])
        run.does(replace(SECOND, id="req-8"))
        await parent.post_with("touch b")
        assert answered(parent) == [("req-7", True)]


@pytest.mark.parametrize(
    "change", ["action_json = replace(action_json, 'a', 'b')", "digest = 'no' || substr(digest, 3)"]
)
async def test_a_row_that_is_not_what_was_asked_allows_nothing(tmp_path: Path, change: str) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, FIRST)
        card = await parent.post_with("touch a")
        with sqlite3.connect(tmp_path / ".codebutler" / "store.db", timeout=10) as store:
            store.execute(f"UPDATE approvals SET {change}")
        store.close()
        press(parent, buttons(card)["Allow"], "500.1")
        await parent.until(lambda: answered(parent))
        assert answered(parent) == [("req-1", False)]
        assert "not what was approved" in parent.backend.answers[0][1].text


async def test_a_long_plan_is_attached_whole(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        plan = "\n\n".join(f"{number}. " + "step " * 100 for number in range(60))
        await asks(parent, replace(PLAN, input={"plan": plan}))
        await parent.post_with("Here is the plan")
        files = await parent.until(
            lambda: [one for one in parent.operations if isinstance(one, Upload)], flow=True
        )
        assert files[0].content.decode() == plan


async def test_large_requests_have_cards_of_their_own(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        large = {"command": "touch " + "x" * 4_000}
        await asks(parent, replace(FIRST, input=large), replace(SECOND, input=large))
        await parent.until(lambda: len(parent.posts) == 2)


async def test_a_request_too_long_for_its_card_is_a_file_beside_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        command = "touch " + "x" * 12_000
        await asks(parent, replace(FIRST, input={"command": command, "description": "Touch it"}))
        card = await parent.post_with("Permission needed: `Bash` · Touch it")
        assert "more characters are in the file below" in str(blocks_of(card))
        (file,) = await parent.until(lambda: [one for one in parent.operations if isinstance(one, Upload)])
        assert (file.filename, file.thread) == ("request.txt", "100.1")
        assert command in file.content.decode()


async def test_a_plan_is_approved_or_kept_at(tmp_path: Path) -> None:
    async with worker(with_quorum(tmp_path, look=2)) as parent:
        run = await asks(parent, PLAN)
        card = await parent.post_with("Here is the plan")
        assert "1. *look*" in text_of(card)
        assert list(buttons(card)) == ["Approve", "Keep planning", "Say what to change…"]
        parent.says("no, look twice", "9900.1", "100.1")
        await parent.until(lambda: answered(parent) == [("req-1", False)])
        said = parent.backend.answers[0][1].text
        assert "keep planning" in said
        assert "look twice" in said
        run.does(replace(PLAN, id="req-2"), replace(FIRST, id="req-3"))
        await parent.until(lambda: len([post for post in parent.posts if blocks_of(post)]) == 3)
        again = [post for post in parent.posts if "the plan" in text_of(post)][-1]
        await parent.stored(
            press(parent, ("codebutler.allow_session", buttons(again)["Approve"][1]), "500.1")
        )
        press(parent, buttons(again)["Approve"], "500.2")
        await parent.until(lambda: ("req-2", True) in answered(parent))
        assert len(answered(parent)) == 2


async def test_words_that_were_begun_before_a_card_was_seen_do_not_decide_it(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, FIRST)
        await parent.post_with("touch a")
        for at, text in enumerate(("yes", "no, because")):
            said = posted(
                channel=CHANNEL,
                ref=f"9900.{at}",
                user=OPERATOR,
                text=text,
                thread="100.1",
                origin="local",
                seen="0.0",
            )
            await parent.stored(parent.deliver(said, Prompt(text=text)))
        assert answered(parent) == []
        assert parent.said(Heartbeat)[-1].waiting == 1
        seen = msgspec.structs.replace(said, ref="9901.0", text="yes", seen="9900.5")
        parent.deliver(seen, Prompt(text="yes"))
        await parent.until(lambda: answered(parent) == [("req-1", True)])
