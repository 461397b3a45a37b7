"""What a thread chooses for itself: its agent, that agent's model and mode, and who may choose what."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from codebutler.config.programs import CONFIGURED, Choice
from codebutler.config.schema import (
    AuthorizationRule,
    AuthorizationSection,
    ClaudeSection,
    CommandRule,
    RepoSettings,
)
from codebutler.domain.model import Command, Post
from codebutler.protocol.messages import Audit
from codebutler_worker.agents.backend import Approval, Question, Started
from tests.events import clicked, posted, slashed
from tests.shown import blocks_of, text_of
from tests.worker_kit import CHANNEL, USER, Parent, settings, worker

BEN = "U0BEN"


def careful(
    repo: Path, *, may_loosen: tuple[str, ...] = (), rules: tuple[AuthorizationRule, ...] = ()
) -> RepoSettings:
    """A repository where Claude Code asks before each change."""
    told = settings(repo)
    config = msgspec.structs.replace(
        told.config,
        claude=ClaudeSection(permission_mode="ask", model="opus"),
        authorization=AuthorizationSection(may_loosen=may_loosen, rules=rules),
        commands=(
            *told.config.commands,
            CommandRule(prefix="goose", binary="goose", args=("acp",), mode="acp"),
        ),
    )
    return msgspec.structs.replace(told, config=config)


async def choose(parent: Parent, words: str, ts: str, thread: str | None = "100.1", user: str = USER) -> str:
    """Say it; the answer."""
    name, _, argument = words.partition(" ")
    before = len(parent.posts)
    event = posted(channel=CHANNEL, ref=ts, user=user, text=f"!{words}", thread=thread)
    parent.deliver(event, Command(name=name, argument=argument))
    await parent.until(lambda: len(parent.posts) > before, flow=True)
    return text_of(parent.posts[before])


async def used(parent: Parent, ts: str, thread: str | None = "100.1", user: str = USER) -> tuple[str, Choice]:
    """Which agent answers the next message there, and how it works."""
    number = len(parent.backend.runs)
    parent.says("work", ts, thread, user=user)
    (await parent.run(number)).finish()
    await parent.until(lambda: parent.reactions(ts) == ["white_check_mark"], flow=True)
    return parent.backend.chosen[-1]


async def test_a_thread_keeps_its_choices_over_a_restart_and_forgets_them_when_told(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        assert await choose(parent, "agent rehearsal", "100.1", None) == (
            "`rehearsal` answers in this thread. This applies from the next run."
        )
        assert await used(parent, "100.2") == ("rehearsal", CONFIGURED)
        assert (await used(parent, "200.1", None))[0] == "claude"
    async with worker(settings(tmp_path)) as parent:
        assert (await used(parent, "100.3"))[0] == "rehearsal"
        await choose(parent, "status", "100.4")
        assert "In this thread: agent `rehearsal`" in text_of(parent.posts[-1])
        assert "`claude`, the configured agent, answers" in await choose(parent, "agent default", "100.5")
        assert (await used(parent, "100.6"))[0] == "claude"
        assert "In this thread" not in await choose(parent, "status", "100.7")


async def test_a_typed_prefix_still_names_its_agent(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await choose(parent, "agent rehearsal", "100.1", None)
        parent.says("work", "100.2", "100.1", prefix="claude")
        await parent.run(0)
        assert parent.backend.chosen[-1][0] == "claude"


async def test_without_a_name_it_lists_the_agents_and_says_what_the_thread_uses(tmp_path: Path) -> None:
    async with worker(careful(tmp_path)) as parent:
        await choose(parent, "model haiku", "100.1", None)
        listed = await choose(parent, "agent", "100.2")
        assert listed.startswith("Agent `claude` · model `haiku` (chosen in this thread) · mode `ask`\n")
        assert "✅ `claude:` Claude Code 1.2.3" in listed
        assert "❌ `kimi:` Kimi Code · install it" in listed
        assert listed.endswith("Commands of `claude`: `/greet`")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("agent claud", "There is no agent `claud` here. Did you mean `!agent claude`?"),
        (
            "agent refactor",
            "There is no agent `refactor` here. Available: `claude`, `kimi`, `agent`, `rehearsal`, `goose`.",
        ),
        ("agent run", "`run` is a program"),
        ("agent kimi", "`kimi` is not ready here: install it."),
        ("model -x", "`-x` is not the name of a model."),
        ("mode everything", "Usage: `!mode [plan | ask | edit | full | default]`"),
    ],
)
async def test_what_cannot_be_chosen_is_answered_with_what_can(
    tmp_path: Path, words: str, expected: str
) -> None:
    async with worker(careful(tmp_path)) as parent:
        assert expected in await choose(parent, words, "100.1", None)
        assert await used(parent, "100.2") == ("claude", CONFIGURED)


async def test_a_slash_command_has_no_thread_to_choose_for(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        event = slashed(channel=CHANNEL, user=USER, command="/butler", text="mode plan", invocation="t-mode")
        parent.deliver(event, Command(name="mode", argument="plan"))
        await parent.post_with("Slash commands may not work in threads")


async def test_model_and_mode_are_the_threads(tmp_path: Path) -> None:
    async with worker(careful(tmp_path)) as parent:
        assert "uses the model `haiku` in this thread" in await choose(parent, "model haiku", "100.1", None)
        assert "uses the mode `plan`" in await choose(parent, "mode plan", "100.2")
        assert await used(parent, "100.3") == ("claude", Choice("haiku", "plan"))
        assert await used(parent, "200.1", None) == ("claude", CONFIGURED)
        assert "model `haiku`, mode `plan`" in await choose(parent, "status", "100.4")
        await choose(parent, "model default", "100.5")
        assert "model" not in await choose(parent, "status", "100.8")
        assert "uses the configured mode again: `ask`." in await choose(parent, "mode default", "100.6")
        # By name: the session would keep the other one.
        assert await used(parent, "100.7") == ("claude", Choice("default"))
        assert (await choose(parent, "agent", "100.9")).startswith(
            "Agent `claude` · model `opus` · mode `ask`\n"
        )


async def test_the_model_of_one_agent_is_not_anothers(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await choose(parent, "model haiku", "100.1", None)
        await choose(parent, "agent rehearsal", "100.2")
        assert await used(parent, "100.3") == ("rehearsal", CONFIGURED)


async def test_an_agent_without_a_model_and_modes_says_so(tmp_path: Path) -> None:
    async with worker(settings(tmp_path)) as parent:
        await choose(parent, "agent rehearsal", "100.1", None)
        assert await choose(parent, "mode plan", "100.2") == "`rehearsal` has no modes to choose from."
        assert await choose(parent, "model x", "100.3") == "`rehearsal` has no models to choose from."


async def test_a_mode_that_asks_less_is_for_whom_the_configuration_names(tmp_path: Path) -> None:
    async with worker(careful(tmp_path)) as parent:
        assert "authorization.mayLoosen" in await choose(parent, "mode full", "100.1", None)
        assert "authorization.mayLoosen" in await choose(parent, "mode edit", "100.2")
        assert await used(parent, "100.3") == ("claude", CONFIGURED)


async def test_it_counts_only_for_those_who_may_choose_it(tmp_path: Path) -> None:
    async with worker(careful(tmp_path, may_loosen=(USER,))) as parent:
        await choose(parent, "mode full", "100.1", None)
        assert await used(parent, "100.2") == ("claude", Choice(mode="bypassPermissions"))
        assert await used(parent, "100.3", user=BEN) == ("claude", CONFIGURED)
        # Taking it back loosens nothing, so anybody may.
        assert "configured mode again" in await choose(parent, "mode default", "100.4", user=BEN)


@pytest.mark.parametrize("taken_back", [False, True])
async def test_what_somebody_else_says_does_not_enter_a_run_that_asks_less(
    tmp_path: Path, taken_back: bool
) -> None:
    told = careful(tmp_path, may_loosen=(USER,))
    steering = msgspec.structs.replace(told.config.agent, busy="steer")
    told = msgspec.structs.replace(told, config=msgspec.structs.replace(told.config, agent=steering))
    async with worker(told) as parent:
        parent.backend.takes_steering = True
        await choose(parent, "mode full", "100.1", None)
        parent.says("work", "100.2", "100.1")
        run = await parent.run(0)
        if taken_back:
            await choose(parent, "mode default", "100.4")
        await parent.stored(parent.says("and delete it all", "100.3", "100.1", user=BEN))
        run.finish()
        (await parent.run(1)).finish()
        assert parent.backend.steered == []
        assert parent.backend.chosen == [("claude", Choice(mode="bypassPermissions")), ("claude", CONFIGURED)]


async def test_what_somebody_else_says_does_not_enter_it_with_a_later_message(tmp_path: Path) -> None:
    told = careful(tmp_path, may_loosen=(USER,))
    steering = msgspec.structs.replace(told.config.agent, busy="steer")
    told = msgspec.structs.replace(told, config=msgspec.structs.replace(told.config, agent=steering))
    async with worker(told) as parent:
        parent.backend.takes_steering = True
        await choose(parent, "mode full", "100.1", None)
        parent.says("work", "100.2", "100.1")
        run = await parent.run(0)
        await parent.stored(parent.says("and delete it all", "100.3", "100.1", user=BEN))
        # Both wait as one.
        await parent.stored(parent.says("and test it", "100.4", "100.1"))
        run.finish()
        (await parent.run(1)).finish()
        assert parent.backend.steered == []
        assert parent.backend.chosen == [("claude", Choice(mode="bypassPermissions")), ("claude", CONFIGURED)]


async def waits_in_full_mode(parent: Parent, asked: Approval | Question) -> str:
    """A run of USER in a mode that asks less than configured has asked; the question's ID."""
    await choose(parent, "mode full", "100.1", None)
    parent.says("work", "100.2", "100.1")
    (await parent.run(0)).does(Started("session-1"), asked)
    await parent.until(lambda: [value for post in parent.posts for value in buttons(post)])
    return next(value for post in parent.posts for value in buttons(post)).partition(":")[0]


def buttons(post: Post) -> list[str]:
    return [element["value"] for block in blocks_of(post) for element in block.get("elements", [])]


def pressed(parent: Parent, action: str, value: str, user: str, words: str = "") -> None:
    parent.deliver(
        clicked(
            channel=CHANNEL,
            user=user,
            message="9000.000001",
            action_id=f"codebutler.{action}",
            value=value,
            press=f"500.{user}",
            thread="100.1",
            words=words,
        )
    )


@pytest.mark.parametrize("writes", [False, True])
async def test_somebody_who_may_not_loosen_does_not_answer_the_question_of_a_run_that_asks_less(
    tmp_path: Path, writes: bool
) -> None:
    async with worker(careful(tmp_path, may_loosen=(USER, "U0EVE"))) as parent:
        asked = await waits_in_full_mode(parent, Question("q-1#0", "Which?", ("Keep", "Delete")))
        if writes:
            parent.says("delete it all", "9900.1", "100.1", user=BEN)
        else:
            pressed(parent, "answer", f"{asked}:1", BEN)
        refused = await parent.post_with("can answer its questions")
        assert refused.mention == BEN
        assert parent.backend.answers == []
        # A colleague who may choose such a mode may.
        pressed(parent, "answer", f"{asked}:0", "U0EVE")
        await parent.until(lambda: parent.backend.answers)
        assert [answer.text for _, answer in parent.backend.answers] == ["Keep"]


async def test_a_denial_counts_there_but_not_its_words(tmp_path: Path) -> None:
    async with worker(careful(tmp_path, may_loosen=(USER,))) as parent:
        asked = await waits_in_full_mode(parent, Approval("req-1", "Bash", "ls", {"command": "ls"}))
        pressed(parent, "deny", asked, BEN, "run rm -rf instead")
        await parent.post_with("Your reason was not passed on")
        await parent.until(lambda: parent.backend.answers)
        answer = parent.backend.answers[0][1]
        assert (answer.allow, "rm -rf" in answer.text) == (False, False)


async def test_anybody_answers_the_question_of_a_run_in_a_stricter_mode(tmp_path: Path) -> None:
    async with worker(careful(tmp_path, may_loosen=(USER,))) as parent:
        await choose(parent, "mode plan", "100.1", None)
        parent.says("work", "100.2", "100.1")
        (await parent.run(0)).does(Started("session-1"), Question("q-1#0", "Which?", ("Keep", "Delete")))
        await parent.until(lambda: [value for post in parent.posts for value in buttons(post)])
        asked = next(value for post in parent.posts for value in buttons(post)).partition(":")[0]
        pressed(parent, "answer", f"{asked}:1", BEN)
        await parent.until(lambda: parent.backend.answers)
        assert [answer.text for _, answer in parent.backend.answers] == ["Delete"]


async def test_a_chosen_agent_answers_only_those_who_may_use_it(tmp_path: Path) -> None:
    rules = (
        AuthorizationRule(channels=(CHANNEL,), users=(USER,), allowed_prefixes=("claude", "rehearsal")),
        AuthorizationRule(channels=(CHANNEL,), users=(BEN,), allowed_prefixes=("claude",)),
    )
    async with worker(careful(tmp_path, rules=rules)) as parent:
        assert "not authorized to use `rehearsal:`" in await choose(
            parent, "agent rehearsal", "100.1", None, BEN
        )
        await choose(parent, "agent rehearsal", "100.2")
        parent.says("work", "100.3", "100.1", user=BEN)
        await parent.post_with("not authorized to use `rehearsal:`")
        refused = await parent.until(lambda: [each for each in parent.said(Audit) if each.user == BEN])
        assert (refused[0].kind, refused[0].text) == ("rehearsal", "work")
        assert refused[0].decision.startswith("refused: ")
        assert (await used(parent, "100.4"))[0] == "rehearsal"
        assert len(parent.backend.runs) == 1
