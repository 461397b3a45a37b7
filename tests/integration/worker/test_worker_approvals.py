"""Leave and questions: asked on a card, decided once, by whoever may."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from codebutler.config.schema import AuthorizationRule, AuthorizationSection, RepoSettings
from codebutler.domain.model import Post, Prompt, Update
from codebutler.protocol.messages import Audit, Heartbeat
from codebutler_worker.agents.backend import Approval, Finished, Question, Started
from tests.events import clicked, numbered
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, Run, expiring, settings, worker

COMMAND = "rm -rf build && echo '<!channel>' ```"
ASKED = Approval("req-1", "Bash", "rm -rf build", {"command": COMMAND, "description": "clean"})
BELOW = "9900.000001"


def values(post: Post | Update) -> list[tuple[str, str]]:
    """(action_id, value) of a post's buttons."""
    elements = [element for block in blocks_of(post) for element in block.get("elements", [])]
    return [(element["action_id"], element["value"]) for element in elements]


def press(
    parent: Parent, action_id: str, value: str, *, user: str = USER, at: str = "500.1", words: str = ""
) -> int:
    event = clicked(
        channel=CHANNEL,
        user=user,
        message="9000.000001",
        action_id=action_id,
        value=value,
        press=at,
        thread="100.1",
        words=words,
    )
    return parent.deliver(event)


async def asks(parent: Parent, *asked: Approval | Question) -> Run:
    """A turn in thread 100.1 that has asked."""
    parent.says("clean up", "100.1")
    run = await parent.run(0)
    run.does(Started("session-1"), *asked)
    await parent.until(lambda: parent.said(Heartbeat)[-1].waiting == 1)
    return run


async def approval_id(parent: Parent) -> str:
    return values(await parent.post_with("Permission needed"))[0][1]


def guarded(repo: Path, *users: str) -> RepoSettings:
    """Only ``users`` may use the agent."""
    rule = AuthorizationRule(channels=(CHANNEL,), users=users, allowed_prefixes=("claude",))
    plain = settings(repo)
    config = msgspec.structs.replace(plain.config, authorization=AuthorizationSection(rules=(rule,)))
    return msgspec.structs.replace(plain, config=config)


async def test_a_card_shows_the_call_and_lets_the_turn_wait(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        card = await parent.post_with("Permission needed: `Bash`")
        assert card.thread == "100.1"
        assert "rm -rf build &amp;&amp; echo" in text_of(card)
        assert str(tmp_path) in text_of(card)
        assert [action for action, _ in values(card)] == [
            "codebutler.allow",
            "codebutler.allow_session",
            "codebutler.deny",
            "codebutler.deny_reason",
        ]
        beat = parent.said(Heartbeat)[-1]
        assert (beat.running, beat.waiting) == (0, 1)
        assert parent.backend.answers == []


async def test_a_double_click_decides_once_and_the_second_is_told(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, ASKED)
        asked = await approval_id(parent)
        press(parent, "codebutler.allow", asked)
        press(parent, "codebutler.deny", asked, user="U0BEN", at="500.2")
        press(parent, "codebutler.allow", asked)  # a replay of the first
        await parent.post_with(f"Already decided by <@{USER}>: allowed")
        await parent.until(lambda: parent.backend.answers)
        run.finish()
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        assert [(id_, answer.allow) for id_, answer in parent.backend.answers] == [("req-1", True)]
        assert [text_of(card) for card in parent.updates if f"Allowed by <@{USER}>" in text_of(card)]
        assert [values(card) for card in parent.updates] == [[]] * len(parent.updates)
        assert ("allowed", USER) in [(act.decision, act.user) for act in parent.said(Audit)]
        assert sum("Already decided" in text_of(post) for post in parent.posts) == 1


async def test_a_reason_from_the_form_reaches_the_agent_and_is_shown(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        asked = await approval_id(parent)
        press(parent, "codebutler.deny", asked, words="use <trash>\ninstead")
        press(parent, "codebutler.deny", asked, words="me too", user="U0BEN", at="500.2")
        await parent.until(lambda: parent.backend.answers)
        answer = parent.backend.answers[0][1]
        assert answer.allow is False
        assert "use <trash>\ninstead" in answer.text
        await parent.until(
            lambda: [card for card in parent.updates if "use &lt;trash&gt; instead" in text_of(card)]
        )
        late = await parent.post_with("Already decided by")
        assert "Your text was not passed on: me too" in text_of(late)
        assert len(parent.backend.answers) == 1


async def test_who_may_not_use_the_agent_may_not_decide(tmp_path: Path) -> None:
    async with worker(guarded(tmp_path, USER)) as parent:
        await asks(parent, ASKED)
        asked = await approval_id(parent)
        press(parent, "codebutler.allow", asked, user="U0EVE")
        await parent.post_with("You are not authorized to use `claude:` here")
        assert parent.backend.answers == []
        press(parent, "codebutler.deny", asked, at="500.2")
        await parent.until(lambda: parent.backend.answers)
        assert parent.backend.answers[0][1].allow is False


async def test_a_worker_asks_again_whether_somebody_is_allowed_at_all(tmp_path: Path) -> None:
    """The parent lets no stranger in; should one come through, nothing is decided."""
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        press(parent, "codebutler.allow", await approval_id(parent), user="U0MALLORY")
        await parent.post_with("You are not authorized to use CodeButler here")
        assert parent.backend.answers == []


async def test_forged_and_foreign_values_do_nothing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        asked = await approval_id(parent)
        turn_id = parent.backend.runs[0].request.turn_id
        tries = [("allow", turn_id), ("allow", ""), ("allow", "f" * 32), ("answer", f"{asked}:0")]
        for number, (action, value) in enumerate(tries):
            await parent.stored(press(parent, f"codebutler.{action}", value, at=f"600.{number}"))
        foreign = clicked(
            channel="C0OTHER",
            user=USER,
            message="1.1",
            action_id="codebutler.allow",
            value=asked,
            press="601.1",
        )
        await parent.stored(parent.deliver(foreign))
        told = await parent.post_with("That button no longer works")
        assert told.only_for == USER
        assert parent.backend.answers == []
        assert parent.said(Heartbeat)[-1].waiting == 1


async def test_for_this_session_covers_exactly_that(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, ASKED)
        press(parent, "codebutler.allow_session", await approval_id(parent))
        await parent.until(lambda: len(parent.backend.answers) == 1)
        run.does(replace(ASKED, id="req-2", input={"command": COMMAND, "description": "again"}))
        await parent.until(lambda: len(parent.backend.answers) == 2)
        other = {"command": COMMAND + " -v"}
        run.does(replace(ASKED, id="req-3", input=other))
        await parent.until(lambda: sum("Permission needed" in text_of(post) for post in parent.posts) == 2)
        assert [id_ for id_, _ in parent.backend.answers] == ["req-1", "req-2"]
        assert any("for this session: exactly this command" in text_of(card) for card in parent.updates)
        assert "allowed for the session" in [act.decision for act in parent.said(Audit)]


async def test_typed_words_decide_and_other_words_queue(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        await approval_id(parent)
        parent.says("yes", "1000.1", "100.1")  # written before the card
        parent.says("yes please, and then the docs", "9800.1", "100.1")
        await parent.stored(parent.says("yes", "9800.2", "200.1"))  # another thread
        assert parent.backend.answers == []
        parent.says("no, keep the cache", BELOW, "100.1")
        await parent.until(lambda: parent.backend.answers)
        answer = parent.backend.answers[0][1]
        assert answer.allow is False
        assert "keep the cache" in answer.text
        await parent.until(lambda: parent.reactions(BELOW) == ["white_check_mark"])
        await parent.until(lambda: parent.reactions("9800.1") == ["hourglass_flowing_sand"], flow=True)
        assert any(f"Denied by <@{USER}>: keep the cache" in text_of(card) for card in parent.updates)


async def test_whether_the_card_stood_there_is_told_by_the_order_not_by_the_name(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        await approval_id(parent)
        for name, order in (("9999", "8999.1"), ("7", "9999.1")):
            assert parent.backend.answers == []
            said = numbered(
                int(name), 1.0, channel=CHANNEL, user=USER, text="yes", thread="100.1", order=order
            )
            await parent.stored(parent.deliver(said, Prompt(text="yes")))
        await parent.until(lambda: [answer.allow for _, answer in parent.backend.answers] == [True])


async def test_a_typed_yes_for_two_cards_is_ambiguous(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED, replace(ASKED, id="req-2", input={"command": "ls"}))
        await parent.until(lambda: parent.updates)
        parent.says("yes", BELOW, "100.1")
        await parent.post_with("Several cards are open")
        assert parent.backend.answers == []


async def test_a_question_is_answered_by_a_button_or_in_words(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, Question("req-1#0", "Which <colour>?", ("Blue", "Red")))
        card = await parent.post_with("Which &lt;colour&gt;?")
        assert [action for action, _ in values(card)] == ["codebutler.answer", "codebutler.answer"]
        asked = values(card)[0][1].partition(":")[0]
        await parent.stored(press(parent, "codebutler.answer", f"{asked}:7"))
        assert parent.backend.answers == []
        press(parent, "codebutler.answer", f"{asked}:1", at="500.2")
        await parent.until(lambda: len(parent.backend.answers) == 1)
        run.does(Question("req-2#0", "And how big?"))
        await parent.post_with("And how big?")
        parent.says("as big as a house", BELOW, "100.1")
        await parent.until(lambda: len(parent.backend.answers) == 2)
        assert [answer.text for _, answer in parent.backend.answers] == ["Red", "as big as a house"]


async def test_nobody_decides_in_time_and_everybody_hears_of_it(tmp_path: Path) -> None:
    async with worker(expiring(settings(tmp_path), minutes=30)) as parent:
        await asks(parent, ASKED)
        asked = await approval_id(parent)
        await parent.clock.advance(1700)
        assert parent.backend.answers == []
        await parent.clock.advance(101)
        assert (await parent.post_with("Nobody decided within 30 minutes")).mention == USER
        await parent.until(lambda: parent.backend.answers)
        assert parent.backend.answers[0][1].allow is False
        await parent.until(lambda: any("Nobody decided" in text_of(card) for card in parent.updates))
        press(parent, "codebutler.allow", asked)
        await parent.post_with("It was NOT run")
        assert len(parent.backend.answers) == 1


async def test_a_stopped_turn_closes_its_card(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        asked = await approval_id(parent)
        event = clicked(
            channel=CHANNEL,
            user=USER,
            message="1.1",
            action_id="codebutler.stop",
            value=parent.backend.runs[0].request.turn_id,
            press="1.2",
        )
        parent.deliver(event)
        await parent.until(lambda: parent.reactions("100.1") == ["octagonal_sign"], flow=True)
        assert any("the run ended" in text_of(card).lower() for card in parent.updates)
        press(parent, "codebutler.allow", asked)
        await parent.post_with("It was NOT run")
        assert parent.backend.answers == []


async def test_a_death_while_asking_is_told_and_a_late_click_does_nothing(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await asks(parent, ASKED)
        asked = await approval_id(parent)
    async with worker(settings(tmp_path)) as parent:
        notice = await parent.post_with("The machine stopped while I was working")
        assert {action for action, _ in values(notice)} == {"codebutler.retry", "codebutler.drop"}
        await parent.until(lambda: any("NOT run" in text_of(card) for card in parent.updates))
        press(parent, "codebutler.allow", asked)
        await parent.post_with("That card is closed")
        assert parent.backend.runs == []
        assert parent.backend.answers == []


async def test_a_forgotten_session_takes_its_grants_along(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        run = await asks(parent, ASKED)
        press(parent, "codebutler.allow_session", await approval_id(parent))
        await parent.until(lambda: len(parent.backend.answers) == 1)
        run.does(Finished(True, "Done.", "done"))
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        parent.says("again", "9700.1", "100.1")
        again = await parent.run(1)
        again.does(Started("session-2", fresh=True), replace(ASKED, id="req-9"))
        await parent.until(lambda: parent.said(Heartbeat)[-1].waiting == 1)
        assert len(parent.backend.answers) == 1
