"""What App Home shows, and when it is published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codebutler.chat.layout import Placed, Section, placed
from codebutler.chat.slack.render import blocks_of
from codebutler.chat.telegram.render import render_sections
from codebutler.config.chats import message_url
from codebutler.config.schema import CommandRule, Config
from codebutler.domain.errors import ChatError, ChatRateLimitedError
from codebutler.domain.model import Asked, TurnNote
from codebutler.intake.repos import Repo
from codebutler.parent import apphome_page
from codebutler.parent.apphome import PACE_S, AppHome, HomeSources
from codebutler.parent.apphome_page import RepoCard, stranger
from codebutler.parent.parts import LatestTurns
from codebutler.platform.tasks import Observers, beside
from codebutler.text.markup import Addresses, linked
from codebutler.text.redact import every_text
from tests.clock import ManualClock, settle

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def note(
    state: str,
    text: str = "fix the login",
    minutes: int = 5,
    cost_usd: float | None = None,
    asked: tuple[Asked, ...] = (),
) -> TurnNote:
    at = (NOW - timedelta(minutes=minutes)).isoformat()
    return TurnNote(
        state=state,
        thread="17.000001",
        text=text,
        agent="claude",
        at=at,
        cost_usd=cost_usd,
        id="t1",
        card="17.000002" if state in ("interrupted", "parked") else "",
        asked=asked,
    )


def card(*turns: TurnNote, name: str = "shop", worker: str = "running", trouble: str = "") -> RepoCard:
    return RepoCard(name=name, channel="C1", worker=worker, turns=turns, trouble=trouble)


def home(cards: Sequence[RepoCard], trouble: str, now: datetime) -> list[dict[str, Any]]:
    parts = apphome_page.home(cards, trouble, now)
    return blocks_of([every_text(part, lambda text: linked(text, message_url)) for part in parts])


def text(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(str(block["text"]["text"]) for block in blocks if "text" in block)


def test_a_chat_that_knows_no_channels_shows_the_name() -> None:
    group = RepoCard(
        name="shop",
        channel="tg:-1001",
        worker="running",
        turns=(note("waiting"),),
        channel_name="A [b](c)_d_",
    )
    render_message = render_sections(apphome_page.home([group], "", NOW))
    shown = "\n".join(part.text for part in render_message.parts)
    assert "#tg:" not in shown
    assert shown.count("A [b](c)_d_") == 2


def test_what_needs_somebody_comes_first_with_a_link_to_its_thread() -> None:
    shown = text(home([card(note("done", cost_usd=0.12), note("waiting", "push <it>"))], "", NOW))
    assert shown.index("What needs you") < shown.index("✋") < shown.index("Recent work") < shown.index("✅")
    assert (
        "✋ Needs you: <https://slack.com/archives/C1/p17000001|push &lt;it&gt;> · <#C1> · 5 min ago" in shown
    )
    assert "claude · $0.12 · 5 min ago" in shown
    assert "🟢 <#C1> *shop* · running" in shown
    assert "Problems" not in shown


def test_what_is_paused_says_why() -> None:
    why = "This repository's budget for today is used up: $5.10 of $5.00 <!channel>"
    shown = text(home([card(replace(note("parked"), why=why))], "", NOW))
    assert "⏸️ Paused: <https://slack.com/archives/C1/p17000001|fix the login>" in shown
    assert "\nThis repository's budget for today is used up: $5.10 of $5.00 &lt;" in shown
    assert "<!channel>" not in shown


def test_what_is_out_of_order_is_said() -> None:
    shown = text(
        home([card(name="blog", worker="quarantined", trouble="it keeps failing")], "socket closed", NOW)
    )
    assert "Nothing needs you." in shown
    assert "🔴 socket closed" in shown
    assert "🔴 *blog*: it keeps failing" in shown
    assert "🔴 <#C1> *blog* · quarantined" in shown


def buttons(blocks: list[dict[str, Any]]) -> list[tuple[str, str, Placed]]:
    """(label, action, place) of every button."""
    elements = [one for block in blocks for one in block.get("elements", ())]
    elements = [one for one in elements if one["type"] == "button"]
    return [(one["text"]["text"], one["action_id"], placed(one["value"])) for one in elements]


def at(card_ts: str, value: str) -> Placed:
    return Placed(channel="C1", message=card_ts, value=value, thread="17.000001")


def test_what_is_asked_is_shown_whole_and_decided_there() -> None:
    asked = Asked(id="r1", card="17.000003", text="🔐 Permission needed: `Bash` <!channel>")
    blocks = home([card(note("waiting", asked=(asked,)))], "", NOW)
    assert "Permission needed: `Bash`" in text(blocks)
    assert "<!channel>" not in text(blocks)
    assert buttons(blocks) == [
        ("Allow", "codebutler.allow", at("17.000003", "r1")),
        ("Deny", "codebutler.deny", at("17.000003", "r1")),
        ("Deny with a reason…", "codebutler.deny_reason", at("17.000003", "r1")),
    ]


def test_what_is_not_shown_whole_is_decided_in_its_thread_only() -> None:
    blocks = home([card(note("waiting", asked=(Asked(id="r1", card="17.000003"),)))], "", NOW)
    assert buttons(blocks) == []
    assert "🔐 Needs your approval: <https://slack.com/archives/C1/p17000001|" in text(blocks)
    assert "open its thread" in str(blocks)


def test_several_answers_are_ticked() -> None:
    asked = Asked(
        id="q1", card="17.000003", text="Which?", options=("Roof", "Door"), is_question=True, several=True
    )
    blocks = home([card(note("waiting", asked=(asked,)))], "", NOW)
    group = next(block for block in blocks if block.get("block_id") == "q1")
    [boxes] = group["elements"]
    assert (boxes["type"], boxes["action_id"]) == ("checkboxes", "codebutler.pick")
    assert [(one["text"]["text"], one["value"]) for one in boxes["options"]] == [
        ("Roof", "q1:0"),
        ("Door", "q1:1"),
    ]
    group["elements"] = []
    assert buttons(blocks) == [("Done", "codebutler.answer", at("17.000003", "q1:ticked"))]


def test_the_options_of_a_question_are_buttons() -> None:
    asked = Asked(id="q1", card="17.000003", text="Which?", options=("Red", "<!here>"), is_question=True)
    blocks = home([card(note("waiting", asked=(asked,)))], "", NOW)
    red, here = buttons(blocks)
    assert red == ("Red", "codebutler.answer", at("17.000003", "q1:0"))
    assert here[1:] == ("codebutler.answer", at("17.000003", "q1:1"))
    assert here[0] != "<!here>"
    rows = [block for block in blocks if block["type"] == "actions"]
    assert [len(row["elements"]) for row in rows] == [1, 1]  # Slack: the action IDs of a row differ


@pytest.mark.parametrize(("state", "label"), [("interrupted", "Continue"), ("parked", "Try now")])
def test_what_stands_still_goes_on_or_is_dropped(state: str, label: str) -> None:
    assert buttons(home([card(note(state))], "", NOW)) == [
        (label, "codebutler.retry", at("17.000002", "t1")),
        ("Drop", "codebutler.drop", at("17.000002", "t1")),
    ]


def test_small_figures_read_well() -> None:
    shown = text(home([card(note("done", minutes=0, cost_usd=0.001), note("done", cost_usd=0.0))], "", NOW))
    assert "claude · &lt;$0.01 · just now" in shown
    assert "claude · $0.00 · 5 min ago" in shown


def test_what_is_decided_stands_apart_from_the_next() -> None:
    kinds = [block["type"] for block in home([card(note("interrupted"), note("parked"))], "", NOW)]
    assert kinds[1:6] == ["section", "actions", "divider", "section", "actions"]


def test_what_is_done_has_no_buttons() -> None:
    assert buttons(home([card(note("done"), note("running"))], "", NOW)) == []


def test_a_stranger_sees_one_line() -> None:
    assert len(stranger("slack.allowedUsers")) == 1


STATES = ["waiting", "interrupted", "parked", "running", "queued", "done", "failed", "stopped", "new one"]
ASKED = st.builds(
    Asked,
    id=st.just("a" * 32),
    card=st.just("17.000002"),
    text=st.text(max_size=4000),
    options=st.lists(st.text(max_size=100), max_size=6).map(tuple),
    is_question=st.booleans(),
    several=st.booleans(),
)
NOTES = st.builds(
    note,
    st.sampled_from(STATES),
    st.text(max_size=300),
    st.integers(-10, 10**6),
    asked=st.lists(ASKED, max_size=5).map(tuple),
)


@given(
    st.lists(
        st.builds(card, NOTES, NOTES, NOTES, name=st.text(max_size=64), trouble=st.text(max_size=400)),
        max_size=60,
    )
)
def test_whatever_there_is_it_stays_within_slacks_limits(cards: list[RepoCard]) -> None:
    blocks = home(cards, "", NOW)
    assert len(blocks) <= 100
    for block in blocks:
        if "text" in block:
            assert 1 <= len(block["text"]["text"]) <= (150 if block["type"] == "header" else 3000)
        if block["type"] == "context":
            continue
        for element in block.get("elements", ()):
            if element["type"] == "checkboxes":
                assert 1 <= len(element["options"]) <= 10
            for one in element.get("options", [element]):
                assert 1 <= len(one["text"]["text"]) <= 75
                assert len(one["value"]) <= (150 if one is not element else 2000)


class Slack:
    """Publishes, remembers, and may refuse once."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.published: list[tuple[str, str]] = []
        self.notes: dict[str, str] = {}
        self.fault: ChatError | None = None
        self.allowed = {"U1"}

    async def publish_home(self, user: str, parts: Sequence[Section]) -> None:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        self.published.append((user, text(blocks_of(parts))))

    async def note(self, name: str) -> str:
        return self.notes.get(name, "")

    async def keep_note(self, name: str, value: str) -> None:
        self.notes[name] = value

    def cards(self, user: str) -> list[RepoCard] | None:
        return [card(*self.turns.by_repo.get("shop", ()))] if user in self.allowed else None

    def trouble(self) -> str:
        return ""

    async def addresses(self) -> Addresses:
        return partial(message_url, home="https://acme.slack.com/")

    @asynccontextmanager
    async def life(self, *, has_homes: bool = True) -> AsyncIterator[AppHome]:
        changed = Observers[()]()
        self.turns = LatestTurns(self, changed.tell)
        sources = HomeSources(self.turns, self.cards, self.trouble, "slack.allowedUsers")
        board = self if has_homes else None
        home = AppHome(
            board,
            self,
            sources,
            self.clock,
            lambda said: said.replace("s3cret", "[redacted]"),
            self.addresses,
        )
        changed.add(home.changed)
        async with beside(home.run(), name="home"):
            await settle()
            yield home

    async def passes(self) -> None:
        await self.clock.advance(PACE_S)
        await settle()


async def test_it_is_published_when_opened_and_when_something_changes() -> None:
    slack = Slack()
    async with slack.life() as home:
        slack.turns.tell("shop", (note("running"),))
        await slack.passes()
        assert slack.published == []
        home.opened("U1")
        await slack.passes()
        for state in ("waiting", "done"):  # together they are one change
            slack.turns.tell("shop", (note(state, "use s3cret"),))
        slack.turns.tell("shop", (note("done", "use s3cret"),))
        await slack.passes()
        assert len(slack.published) == 2
        assert "✅ <https://acme.slack.com/archives/C1/p17000001|use [redacted]>" in slack.published[1][1]
        home.changed()
        await slack.passes()
        assert len(slack.published) == 2  # nothing new to show


async def test_nobody_waits_for_the_page_they_open() -> None:
    slack = Slack()
    async with slack.life() as home:
        slack.turns.tell("shop", (note("running"),))
        await settle()
        home.opened("U1")
        await settle()
        assert [user for user, _ in slack.published] == ["U1"]
        slack.turns.tell("shop", (note("done"),))
        await settle()
        assert len(slack.published) == 1  # changes wait
        await slack.passes()
        assert len(slack.published) == 2


async def test_readers_and_turns_outlive_a_restart() -> None:
    slack = Slack()
    async with slack.life() as home:
        slack.turns.tell("shop", (note("interrupted"),))
        home.opened("U1")
        await slack.passes()
    async with slack.life() as home:
        home.changed()
        await slack.passes()
    assert [user for user, _ in slack.published] == ["U1", "U1"]
    assert "Interrupted: continue or drop it" in slack.published[1][1]


@pytest.mark.parametrize("fault", [ChatRateLimitedError(7.0), ChatError("fatal_error")])
async def test_a_refusal_is_made_good_by_the_next_change(fault: ChatError) -> None:
    slack = Slack()
    async with slack.life() as home:
        slack.fault = fault
        home.opened("U1")
        await slack.clock.advance(10)
        home.opened("U1")
        await slack.clock.advance(10)
        assert [user for user, _ in slack.published][-1:] == ["U1"]


async def test_a_stranger_is_told_so() -> None:
    slack = Slack()
    async with slack.life() as home:
        home.opened("U2")
        await slack.passes()
    ((user, shown),) = slack.published
    assert user == "U2"
    assert "not authorized" in shown
    assert "shop" not in shown


async def test_who_pressed_what_is_gone_is_told_until_the_next_change() -> None:
    slack = Slack()
    async with slack.life() as home:
        home.not_served("U1")
        await slack.passes()
        slack.turns.tell("shop", (note("done"),))
        await slack.passes()
    first, second = (shown for _, shown in slack.published)
    assert "no longer served: nothing was decided" in first
    assert "not served" not in second


async def test_what_waits_for_words_is_known() -> None:
    slack = Slack()
    shop = Repo("shop", Config(commands=(CommandRule(prefix="py", binary="python3", mode="interactive"),)))
    async with slack.life():
        assert not slack.turns.awaits(shop, "17.000001")
        for turn, awaits in (
            (note("waiting"), True),
            (note("running"), False),
            (replace(note("running"), agent="py"), True),
            (note("done"), False),
        ):
            slack.turns.tell("shop", (turn,))
            assert slack.turns.awaits(shop, "17.000001") is awaits
            assert not slack.turns.awaits(shop, "17.000002")


async def test_a_chat_without_homes_shows_none() -> None:
    slack = Slack()
    async with slack.life(has_homes=False) as home:
        home.opened("U1")
        await slack.passes()
    assert slack.published == []
