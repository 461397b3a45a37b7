"""A service that refuses the agent, with the real Claude Code and a subscription's headers.

| case | what happens |
|---|---|
| P20 | the five-hour limit parks the turn; a killed worker forgets nothing; a person tries sooner, and it goes on |
| P21 | a key that is not taken: the command that helps is said, and Continue goes on |
| P22 | the limit again: another agent goes on with what was asked |
| P23 | a budget of our own: the second turn of the day waits and says so; with a higher limit it goes on |
| P24 | nobody does anything: the turn goes on when the limit is over, by the wall clock, and once |
| P25 | an agent that meets the limit in the middle of its work is stopped; with a higher one its session goes on |
| P26 | `agent.onLimit` names another agent: it takes over, and answers until the reset, restarts or not |
| P27 | `agent.onLimit` is `ask`: nothing runs before somebody decides, also not at the reset |
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.e2e.house import House, house, whole_text
from tests.e2e.test_approvals import card, model_env
from tests.faketime import WallClock, family, is_faked
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import require

RETRY = "codebutler.retry"


async def working(built: House, repo: Path, default: str = "claude", **agent: object) -> str:
    require("bwrap")
    channel = await built.add_repo(
        repo,
        "sample",
        agent={"debounceSeconds": 0, "default": default, **agent},
        claude={"binary": str(require("claude"))},
    )
    await built.supervise()
    return channel


def used_up() -> Reply:
    """What the service says to a subscription whose five hours are used up."""
    reset = str(int(time.time()) + 7200)
    limit = "anthropic-ratelimit-unified"
    told = {
        f"{limit}-status": "rejected",
        f"{limit}-reset": reset,
        f"{limit}-representative-claim": "five_hour",
        f"{limit}-5h-status": "rejected",
        f"{limit}-5h-reset": reset,
    }
    return Reply(status=429, error="This request would exceed your limit.", headers=tuple(told.items()))


def subscription(model: ModelServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": model.url, "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-not-a-real-token"}


async def test_p20_a_usage_limit_parks_the_turn(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=subscription(model)) as built:
        channel = await working(built, git_repo)
        model.play(used_up(), Reply("Hello again."))
        ts = await built.say(channel, "hello")
        message, value = await card(built, channel, ts, RETRY)
        assert "5-hour limit" in whole_text(message)
        assert "Resumes automatically at" in whole_text(message)
        status = await built.until_status(lambda status: status["repos"][0]["turns"]["queued"] == 1)
        pid = status["repos"][0]["worker"]["pid"]
        os.kill(pid, signal.SIGKILL)
        await built.until_status(
            lambda status: (
                status["repos"][0]["worker"]["pid"] not in (None, pid)
                and status["repos"][0]["turns"]["queued"] == 1
            )
        )
        assert built.reactions(channel, ts) == {"hourglass_flowing_sand"}
        await built.click(channel, message["ts"], RETRY, value)
        await built.answer(channel, ts, "Hello again.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert len(model.requests) == 2
        assert "machine stopped" not in "".join(whole_text(each) for each in built.answers(channel, ts))


async def test_p21_an_expired_login_names_the_command(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        channel = await working(built, git_repo)
        model.play(*[Reply(status=401, error="OAuth token has expired")] * 5, Reply("Welcome back."))
        ts = await built.say(channel, "hello")
        message, value = await card(built, channel, ts, RETRY)
        assert "claude auth login" in whole_text(message)
        await built.click(channel, message["ts"], RETRY, value)
        await built.answer(channel, ts, "Welcome back.")


async def test_p22_another_agent_goes_on(tmp_path: Path, git_repo: Path) -> None:
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=subscription(model)) as built:
        channel = await working(built, git_repo, "rehearsal")
        model.play(used_up())
        ts = await built.say(channel, "claude: read README.md")
        message, _ = await card(built, channel, ts, RETRY)
        row = message["blocks"][-1]
        assert row["elements"][0]["text"]["text"] == "Continue on rehearsal"
        pressed = {"channel": channel, "message_ts": message["ts"], "block_id": row["block_id"]}
        person = built.workspace.workspace.person
        await built.workspace.interactions.click(person, {**pressed, "action_id": RETRY})
        await built.answer(channel, ts, "A sample repository")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "Continued on rehearsal" in whole_text(built.message(channel, message["ts"]))
        assert len(model.requests) == 1


def long_day() -> str:
    """A zone whose day does not end just now."""
    return "UTC" if datetime.now(UTC).hour < 12 else "Etc/GMT+12"


async def raised(built: House, repo: Path, limits: dict[str, object]) -> None:
    file = repo / ".codebutler" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "budget": limits}))
    await built.run("trust", "sample")


async def test_p23_a_budget_holds_a_turn_until_there_is_room(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with house(tmp_path, "sample") as built:
        agent = {"debounceSeconds": 0, "default": "rehearsal"}
        limits = {"timezone": long_day(), "repo": {"turnsPerDay": 1}}
        channel = await built.add_repo(git_repo, "sample", agent=agent, budget=limits)
        await built.supervise()
        first = await built.say(channel, "list the files")
        assert await built.outcome(channel, first) == "white_check_mark"
        second = await built.say(channel, "read README.md")
        message, value = await card(built, channel, second, RETRY)
        assert "This repository's budget for today is used up: 1 of 1 run." in whole_text(message)
        assert built.reactions(channel, second) == {"hourglass_flowing_sand"}
        status = await built.until_status(lambda status: status["repos"][0]["budget"] != [])
        assert status["repos"][0]["budget"] == [{"unit": "turns", "used": 1.0, "limit": 1.0}]
        await raised(built, git_repo, {**limits, "repo": {"turnsPerDay": 2}})
        await built.click(channel, message["ts"], RETRY, value)
        await built.answer(channel, second, "A sample repository")
        assert await built.outcome(channel, second) == "white_check_mark"


async def test_p24_it_goes_on_by_itself_when_the_limit_is_over(tmp_path: Path, git_repo: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=subscription(model)) as built:
        built.prefix = clock.prefix
        channel = await working(built, git_repo)
        built.prefix = ()
        assert built.supervisor is not None
        assert all(is_faked(pid) for pid in family(built.supervisor.pid))
        model.play(used_up(), Reply("Hello again."))
        ts = await built.say(channel, "hello")
        message, _ = await card(built, channel, ts, RETRY)
        waiting = {"hourglass_flowing_sand"}
        await built.until("the mark", lambda: built.reactions(channel, ts) == waiting or None)
        clock.set(timedelta(hours=1, minutes=55))
        ping = await built.say(channel, "!ping")  # it looks at the clock, and waits on
        await built.answer(channel, ping, "pong")
        assert len(model.requests) == 1
        clock.set(timedelta(hours=2, minutes=5))
        await built.answer(channel, ts, "Hello again.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "▶ Resumed." in whole_text(built.message(channel, message["ts"]))
        clock.set(timedelta(hours=9))
        ping = await built.say(channel, "!ping")
        await built.answer(channel, ping, "pong")
        await built.until_status(lambda status: sum(status["repos"][0]["turns"].values()) == 0)
        assert len(model.requests) == 2
        assert sum("Hello again." in whole_text(each) for each in built.answers(channel, ts)) == 1


async def test_p25_an_agent_that_meets_the_limit_is_stopped(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=model_env(model)) as built:
        limits = {"timezone": long_day(), "thread": {"tokensPerDay": 4000}}
        binary = {"binary": str(require("claude"))}
        channel = await built.add_repo(
            git_repo, "sample", agent={"debounceSeconds": 0}, claude=binary, budget=limits
        )
        await built.supervise()
        waiting = "python3 -c 'import time; time.sleep(600)'"  # Claude Code refuses a mere sleep
        work = Call("Bash", {"command": f"{waiting}; touch {git_repo}/trace"})
        model.play(Reply("This takes a while.", (work,), input_tokens=5000), Reply("Back at it."))
        ts = await built.say(channel, "build it")
        message, value = await card(built, channel, ts, RETRY)
        assert "This thread's budget for today is used up: 5.0k of 4.0k tokens." in whole_text(message)
        await built.until(
            "its mark", lambda: built.reactions(channel, ts) == {"hourglass_flowing_sand"} or None
        )
        await raised(built, git_repo, {**limits, "thread": {"tokensPerDay": 100_000}})
        await built.click(channel, message["ts"], RETRY, value)
        await built.answer(channel, ts, "Back at it.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert "build it" in str(model.requests[-1]["messages"][0])
        assert not (git_repo / "trace").exists()


async def test_p26_another_agent_takes_over_until_the_reset(tmp_path: Path, git_repo: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=subscription(model)) as built:
        built.prefix = clock.prefix
        channel = await working(built, git_repo, onLimit="agent rehearsal")
        built.prefix = ()
        model.play(used_up(), Reply("Hello again."))
        ts = await built.say(channel, "read README.md")
        await built.answer(channel, ts, "`rehearsal` continues here (`agent.onLimit`)")
        await built.answer(channel, ts, "A sample repository")
        assert await built.outcome(channel, ts) == "white_check_mark"
        status = await built.until_status(lambda status: sum(status["repos"][0]["turns"].values()) == 0)
        pid = status["repos"][0]["worker"]["pid"]
        os.kill(pid, signal.SIGKILL)
        second = await built.say(channel, "list the files")
        await built.answer(channel, second, "`rehearsal` answers here until then")
        assert await built.outcome(channel, second) == "white_check_mark"
        assert len(model.requests) == 1
        clock.set(timedelta(hours=2, minutes=5))
        third = await built.say(channel, "hello", ts)
        await built.answer(channel, ts, "Hello again.")
        assert await built.outcome(channel, third) == "white_check_mark"
        assert len(model.requests) == 2
        assert "A sample repository" in str(model.requests[-1]["messages"])


async def test_p27_a_person_is_asked_and_nothing_runs_before(tmp_path: Path, git_repo: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    async with ModelServer() as model, house(tmp_path, "sample", extra_env=subscription(model)) as built:
        built.prefix = clock.prefix
        channel = await working(built, git_repo, onLimit="ask")
        built.prefix = ()
        model.play(used_up(), Reply("Hello again."))
        ts = await built.say(channel, "hello")
        message, value = await card(built, channel, ts, "codebutler.wait")
        assert "Nothing resumes automatically." in whole_text(message)
        await built.until("the mark", lambda: built.reactions(channel, ts) == {"raised_hand"} or None)
        clock.set(timedelta(hours=2, minutes=5))
        ping = await built.say(channel, "!ping")
        await built.answer(channel, ping, "pong")
        assert len(model.requests) == 1
        await built.click(channel, message["ts"], "codebutler.wait", value)
        await built.answer(channel, ts, "Hello again.")
        assert await built.outcome(channel, ts) == "white_check_mark"
        assert len(model.requests) == 2
