"""The form that asks why not: opened at once, or a word instead; sent, it is taken or says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from codebutler.chat.layout import Placed, ReasonForm, packed
from codebutler.chat.slack.forms import IN_WORDS, INSTEAD, FormAsked, PressedInVain, Reasons, reason_view
from codebutler.chat.slack.link import EventHandler, SocketEnvelope
from codebutler.chat.slack.payloads import HomeOpened
from codebutler.config.chats import SlackSection
from codebutler.config.permission import Decision
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatUnreachableError
from codebutler.domain.model import ButtonClicked, Event, Request
from codebutler.intake.intake import Intake, Outcome
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from codebutler.platform.tasks import Tasks
from tests.clock import ManualClock
from tests.memory_chat import MemoryChat

OWNER, STRANGER = "U0OWNER", "U0EVE"


class Scene:
    """A door, an intake and a chat in memory; what was routed, refused and said."""

    def __init__(self, path: Path, lacks: Collection[str] = ()) -> None:
        self.routed: list[Entry] = []
        self.refusals: list[str] = []
        self.said: list[tuple[str, str, str | None]] = []
        self.chat = MemoryChat(lacks=lacks)
        self.journal = Journal.open(path, ManualClock())
        self.broken: list[str] = []
        self.tasks = Tasks(lambda name, error: self.broken.append(f"{name}: {error}"))
        repo = Repo("sample", Config(slack=SlackSection(allowed_users=(OWNER,))))
        intake = Intake(
            repos={"C1": repo},
            journal=self.journal,
            dispatch=self.routed.append,
            refusals=self,
            clock=ManualClock(),
        )
        self.in_vain: list[PressedInVain] = []
        self.homes: list[str] = []
        self.reasons = Reasons(
            self.chat.capabilities.forms, intake, self.notice, self.tasks, self.in_vain.append
        )
        self.door = EventHandler(intake, self.chat.me, lambda notice: self.press(notice))

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        self.refusals.append(event.user)

    def commanded(self, event: Event, request: Request) -> None:
        pass

    def counted(self, outcome: Outcome, seconds: float) -> None:
        pass

    def no_space(self, event: Event) -> None:
        raise AssertionError("there is room")

    async def notice(self, channel: str, text: str, thread_ts: str | None = None) -> None:
        self.said.append((channel, text, thread_ts))

    def press(self, notice: object) -> None:
        if isinstance(notice, HomeOpened):
            self.homes.append(notice.user)
        elif isinstance(notice, PressedInVain):
            self.in_vain.append(notice)
        else:
            assert isinstance(notice, FormAsked)
            self.reasons.asked(notice)

    async def interact(self, **payload: Any) -> dict[str, Any] | None:
        answer = await self.door.handle(SocketEnvelope(envelope_id="e1", type="interactive", payload=payload))
        await self.tasks.close(10)
        assert not self.broken
        return answer


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path / "journal.db")
    yield made
    await made.journal.close()


def wish(user: str = OWNER, channel: str = "C1") -> dict[str, Any]:
    return {
        "type": "block_actions",
        "user": {"id": user},
        "container": {"type": "message", "message_ts": "5.4", "channel_id": channel, "thread_ts": "5.1"},
        "trigger_id": "1.2",
        "actions": [{"action_id": "codebutler.deny_reason", "value": "r1", "action_ts": "6.5"}],
    }


def form(user: str = OWNER, channel: str = "C1") -> dict[str, Any]:
    place = Placed(channel=channel, message="5.4", thread="5.1", value="r1")
    view = reason_view(ReasonForm(place))
    values = {"reason": {"codebutler.reason": {"value": "too dear"}}}
    view = {**view, "id": "V1", "state": {"values": values}}
    return {"type": "view_submission", "user": {"id": user}, "view": view}


async def test_the_form_opens_and_nothing_is_decided_yet(scene: Scene) -> None:
    scene.chat.triggers["1.2"] = OWNER
    await scene.interact(**wish())
    assert scene.chat.forms[OWNER].place.message == "5.4"
    assert (scene.routed, scene.said) == ([], [])


async def test_too_late_for_a_form_the_thread_is_told_what_to_write(scene: Scene) -> None:
    await scene.interact(**wish())
    assert scene.said == [("C1", INSTEAD, "5.1")]
    assert scene.routed == []


async def test_a_slack_that_does_not_answer_is_the_same(scene: Scene) -> None:
    scene.chat.triggers["1.2"] = OWNER
    scene.chat.fail_next("open_form", ChatUnreachableError("down"))
    await scene.interact(**wish())
    assert scene.said == [("C1", INSTEAD, "5.1")]


async def test_a_chat_without_forms_is_told_what_to_write(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "journal.db", lacks=("forms",))
    await scene.interact(**wish())
    assert scene.said == [("C1", IN_WORDS, "5.1")]
    await scene.journal.close()


@pytest.mark.parametrize(("user", "channel", "refusals"), [(STRANGER, "C1", [STRANGER]), (OWNER, "C9", [])])
async def test_who_may_not_decide_gets_no_form(
    scene: Scene, user: str, channel: str, refusals: list[str]
) -> None:
    scene.chat.triggers["1.2"] = user
    await scene.interact(**wish(user, channel))
    assert scene.chat.forms == {}
    assert scene.refusals == refusals


async def test_a_form_that_is_sent_is_kept_and_goes_on(scene: Scene) -> None:
    assert await scene.interact(**form()) is None
    assert await scene.interact(**form()) is None
    [entry] = scene.routed
    assert isinstance(entry.event, ButtonClicked)
    assert (entry.event.action_id, entry.event.words) == ("codebutler.deny", "too dear")
    assert [kept.event for kept in await scene.journal.pending()] == [entry.event]


@pytest.mark.parametrize(
    ("user", "channel", "why"), [(STRANGER, "C1", "not authorized"), (OWNER, "C9", "no longer served")]
)
async def test_a_form_that_is_not_taken_stays_open_with_its_words(
    scene: Scene, user: str, channel: str, why: str
) -> None:
    answer = await scene.interact(**form(user, channel))
    assert answer is not None
    assert answer["response_action"] == "errors"
    assert why in answer["errors"]["reason"]
    assert scene.routed == []


async def test_a_press_for_a_channel_that_is_not_served_is_told(scene: Scene) -> None:
    gone = wish(channel="C9")
    await scene.interact(**gone)
    allow = {**gone, "actions": [{"action_id": "codebutler.allow", "value": "r1", "action_ts": "6.6"}]}
    await scene.interact(**allow)
    place = packed(Placed(channel="C9", message="5.4", thread="5.1", value="r1"))
    at_home = {
        **wish(),
        "container": {"type": "view", "view_id": "V1"},
        "actions": [{"action_id": "codebutler.allow", "value": place, "action_ts": "6.7"}],
    }
    await scene.interact(**at_home)
    here, there = (PressedInVain(OWNER, "C9", "5.1", at_home=at) for at in (False, True))
    assert scene.in_vain == [here, here, there]
    assert (scene.routed, scene.said) == ([], [])


async def test_who_presses_in_app_home_sees_it_anew(scene: Scene) -> None:
    for at, channel in (("6.7", "C1"), ("6.8", "C9")):
        place = packed(Placed(channel=channel, message="5.4", thread="5.1", value="r1"))
        container = {"type": "view", "view_id": "V1"}
        actions = [{"action_id": "codebutler.allow", "value": place, "action_ts": at}]
        await scene.interact(**{**wish(), "container": container, "actions": actions})
    assert scene.homes == [OWNER]
    assert [press.channel for press in scene.in_vain] == ["C9"]
    assert len(scene.routed) == 1
