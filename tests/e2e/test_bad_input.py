"""What goes wrong around the product: each case has a clear line that says what to do, and nothing is lost.

| case | what happens |
|---|---|
| B01 | malformed envelopes and unknown event types: dropped or passed by, the next message is answered |
| B02 | a text of 4 MB has an outcome, and the next message is answered |
| B03 | NUL and half a surrogate pair in a text: answered |
| B04 | a message in a channel of nobody's is left alone |
| B05 | a repository deleted while it is served: told with the way out, its messages kept and answered later |
| B06 | a read-only disk: a line, for the home and for one repository among others |
| B07 | a store newer than the code: that repository is stopped, told once, with the reason in the status |
| B08 | a port in use: a line that names --port |
| B09 | no git, no repository, twice the same, two repositories on one channel: a line each, nothing registered |
| B10 | a token of the wrong kind, a token that is refused: a line, exit code 78 |
| B11 | tokens revoked while running: in the status, and when they work again everything is sent |
| B12 | send: exit codes and lines |
| B13 | every line of the log has its form; what was executed has an audit line |
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from codebutler.observe.chain import verify
from codebutler.workspace.api import Fault
from codebutler.workspace.state import Message
from codebutler_worker.store import tables
from tests.e2e.house import DEADLINE_S, House, command, house, whole_text
from tests.ordinary import give_away
from tests.programs import require

QUICK = {"debounceSeconds": 0, "default": "rehearsal"}
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (INF|WRN|ERR|DBG|MSG|CLD|RSP|MEM)  \S")


async def served(built: House, repo: Path, name: str = "sample") -> str:
    """A repository answered by the rehearsal agent; returns the channel."""
    require("bwrap")
    return await built.add_repo(repo, name, agent=QUICK)


async def refused(
    built: House,
    *arguments: str,
    code: int = 1,
    env: Mapping[str, str] | None = None,
    through: Sequence[str] = (),
) -> str:
    """Run a command that must fail with ``code`` and one line on stderr (after what it logged); returns it."""
    process = await asyncio.create_subprocess_exec(
        *through,
        *command(*arguments),
        env={**built.env, **(env or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, stderr = await process.communicate()
    said = [line for line in stderr.decode().splitlines() if not LINE.match(line)]
    assert (process.returncode, len(said)) == (code, 1), stderr.decode()
    return said[0]


def post_at_length(built: House, channel: str, text: str) -> str:
    """A person's message of any length, as if Slack had taken it; returns its ts."""
    workspace = built.workspace.workspace
    where = workspace.channel(channel)
    message = Message(ts=workspace.next_ts(), user=workspace.person.id, text=text)
    where.add(message)
    built.workspace.context.announcer.message_posted(where, message)
    return message.ts


def events_api(event: object) -> dict[str, Any]:
    return {"type": "event_callback", "event_id": "Ev", "event": event}


async def is_answered(built: House, channel: str) -> None:
    """A message posted now is answered."""
    ts = await built.say(channel, "list the files")
    await built.answer(channel, ts, "README.md")
    assert await built.outcome(channel, ts) == "white_check_mark"


async def test_b01_malformed_and_unknown_envelopes(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        hub = built.workspace.hub
        message = {"type": "message", "channel": channel, "user": "U1", "ts": "1.2", "text": "hi"}
        strange: list[object] = [
            {},
            {"type": "message"},
            {**message, "ts": "yesterday"},
            {**message, "ts": None},
            {**message, "text": 7},
            {**message, "user": ["U1"]},
            {**message, "channel": {}},
            {**message, "files": [None, 3, {"id": 5}]},
            {**message, "subtype": "message_changed"},
            {**message, "subtype": "assistant_app_thread"},
            {"type": "star_added", "user": "U1", "item": {}},
            {"type": "no_such_event"},
        ]
        for event in strange:
            hub.deliver("events_api", events_api(event))
        for kind in ("slash_commands", "interactive", "no_such_envelope"):
            hub.deliver(kind, {"type": "block_actions", "actions": [7]})
        await is_answered(built, channel)
        assert hub.counts.lost == hub.counts.retried == 0
        status = await built.until_status(lambda status: status["journal"]["pending"] == 0)
        assert status["slack"]["failed_handlers"] == 0


async def test_b02_a_text_of_four_megabytes(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        ts = post_at_length(built, channel, "list the files " + "ä" * 2**21)
        assert await built.outcome(channel, ts) in ("white_check_mark", "x")
        (said,) = built.answers(channel, ts)[-1:]
        assert len(whole_text(said)) < 20_000
        await is_answered(built, channel)


async def test_b03_nul_and_half_a_surrogate_pair(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        nul = post_at_length(built, channel, "list\0 the files")
        await built.answer(channel, nul, "README.md")
        said = await built.say(channel, "read README.md")
        # The same message comes again, as a client would never spell it: it is known, and harms nobody.
        raw = msgspec.Raw(
            f'{{"type":"event_callback","event":{{"type":"message","user":"U1","channel":"{channel}",'
            f'"ts":"1.5","text":"half \\ud83d a pair"}}}}'.encode()
        )
        built.workspace.hub.deliver("events_api", raw)  # type: ignore[arg-type]  # JSON as it is
        await built.answer(channel, said, "A sample repository.")
        await is_answered(built, channel)


async def test_b04_a_channel_of_nobody(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample", "elsewhere") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        elsewhere = built.channel_id("elsewhere")
        stray = await built.say(elsewhere, "list the files")
        await is_answered(built, channel)
        assert built.answers(elsewhere, stray) == []
        two = shutil.copytree(git_repo, tmp_path / "two")
        give_away(two)
        nowhere = await refused(built, "add-repo", str(two), "--channel", "C0NOWHERE0")
        assert "cannot see a channel C0NOWHERE0" in nowhere


async def test_b05_a_repository_deleted_while_it_is_served(tmp_path: Path, git_repo: Path) -> None:
    other = shutil.copytree(git_repo, tmp_path / "other")
    async with house(tmp_path, "sample", "gone") as built:
        channel = await served(built, git_repo)
        gone = await served(built, other, "gone")
        await built.supervise()
        kept = other.rename(tmp_path / "kept")
        ts = await built.say(gone, "list the files")
        status = await built.until_status(lambda status: "no longer exists" in status["repos"][1]["problem"])
        assert "remove-repo" in status["repos"][1]["problem"]
        assert "no longer exists" in await built.run("status")
        assert status["journal"]["pending"] == 1
        await is_answered(built, channel)
        kept.rename(other)
        await built.answer(gone, ts, "README.md")
        assert await built.outcome(gone, ts) == "white_check_mark"
        assert (await built.until_status(lambda status: True))["repos"][1]["problem"] == ""


async def test_b06_a_read_only_disk(tmp_path: Path, git_repo: Path) -> None:
    bwrap = str(require("bwrap"))
    other = shutil.copytree(git_repo, tmp_path / "other")
    async with house(tmp_path, "sample", "locked") as built:
        channel = await served(built, git_repo)
        locked = await served(built, other, "locked")
        whole = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--die-with-parent", "--"]
        line = await refused(built, "supervise", through=whole)
        assert "read-only" in line
        partly = [bwrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
        await built.start_supervisor(
            through=[*partly, "--ro-bind", str(other), str(other), "--die-with-parent"]
        )
        status = await built.until_status(
            lambda status: status["repos"][1]["problem"] and status["slack"]["state"] == "connected"
        )
        assert "its disk is not read-only" in status["repos"][1]["problem"]
        assert status["repos"][0]["worker"]["state"] == "running"
        ts = await built.say(locked, "list the files")
        pong = await built.say(channel, "!ping")
        await built.answer(channel, pong, "pong")
        await built.until_status(lambda status: status["journal"]["pending"] == 1)
        await built.stop()
        await built.supervise()
        await built.answer(locked, ts, "README.md")


async def test_b07_a_store_newer_than_the_code(tmp_path: Path, git_repo: Path) -> None:
    other = shutil.copytree(git_repo, tmp_path / "other")
    async with house(tmp_path, "sample", "newer") as built:
        channel = await served(built, git_repo)
        newer = await served(built, other, "newer")
        await built.supervise()
        await built.stop()
        set_revision(other, "9999")
        await built.start_supervisor()
        await built.until_status(lambda status: status["slack"]["state"] == "connected")
        ts = await built.say(newer, "list the files")
        status = await built.until_status(
            lambda status: status["repos"][1]["worker"]["state"] == "stopped" and status["journal"]["pending"]
        )
        assert "newer CodeButler" in status["repos"][1]["problem"]
        await is_answered(built, channel)
        (notice,) = await built.until("the notice", lambda: notices(built, newer))
        assert "newer CodeButler" in notice
        assert "newer CodeButler" in built.log()
        line = await refused(built, "send", "newer", "list the files", "--wait")
        assert "newer CodeButler" in line
        assert "kept until it is" in line
        await built.stop()
        set_revision(other, tables.HEAD)
        await built.supervise()
        await built.answer(newer, ts, "README.md")


async def test_b08_a_port_in_use(tmp_path: Path) -> None:
    async with house(tmp_path, "sample") as built:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            for name in ("workspace", "demo"):
                line = await refused(built, name, "--port", port)
                assert f"port {port} is in use: choose another with --port" in line


async def test_b09_what_cannot_be_registered(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample", "two") as built:
        channel = await built.add_repo(git_repo, "sample")
        other = shutil.copytree(git_repo, tmp_path / "other")
        give_away(other)
        plain = tmp_path / "plain"
        plain.mkdir()
        to_two = ("--channel", built.channel_id("two"))
        bare = {"PATH": str(Path(sys.executable).parent)}
        assert "git is not installed" in await refused(built, "add-repo", str(other), *to_two, env=bare)
        assert "is not a git repository" in await refused(built, "add-repo", str(plain), *to_two)
        assert "already registered as sample" in await refused(built, "add-repo", str(git_repo), *to_two)
        taken = await refused(built, "add-repo", str(other), "--channel", channel)
        assert f"channel {channel} already belongs to sample" in taken
        named = await refused(built, "add-repo", str(other), *to_two, "--name", "sample")
        assert "choose another with --name" in named
        assert [repo["name"] for repo in json.loads(await built.run("repos", "--json"))] == ["sample"]


async def test_b10_tokens_that_cannot_be_used(tmp_path: Path) -> None:
    async with house(tmp_path, "sample") as built:
        bot, app, user = (getattr(built.workspace, f"{kind}_token") for kind in ("bot", "app", "user"))
        wrong = {
            ("SLACK_BOT_TOKEN", app): "expected a bot token (xoxb-…)",
            ("SLACK_APP_TOKEN", bot): "expected an app-level token (xapp-…)",
            ("SLACK_BOT_TOKEN", "xoxb-of-nobody"): "run `codebutler setup`",
            ("SLACK_APP_TOKEN", "xapp-1-of-nobody"): "run `codebutler setup`",
            ("SLACK_BOT_TOKEN", user): "expected a bot token (xoxb-…)",
        }
        for (variable, token), told in wrong.items():
            line = await refused(built, "supervise", code=78, env={variable: token})
            assert told in line
            assert token not in line
            option = "--" + variable.removeprefix("SLACK_").lower().replace("_", "-")
            assert token not in await refused(built, "setup", option, token, code=78)


async def test_b11_tokens_revoked_for_a_while(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        revoked = Fault(method="*", kind="error", error="token_revoked", times=1_000_000)
        built.workspace.faults.add(revoked)
        ts = built.workspace.say(channel, "list the files")
        status = await built.until_status(
            lambda status: status["outbox"]["pending"] > 0 and status["slack"]["trouble"]
        )
        assert "slack.botToken (token_revoked)" in status["slack"]["trouble"]
        built.workspace.hub.connections.drop()
        status = await built.until_status(lambda status: status["slack"]["state"] == "auth_failed")
        assert "token_revoked" in status["slack"]["trouble"]
        assert "codebutler setup" in await built.run("status")
        built.workspace.faults.clear()
        await built.until_status(lambda status: status["slack"]["state"] == "connected")
        await built.answer(channel, ts, "README.md")
        assert await built.outcome(channel, ts) == "white_check_mark"
        status = await built.until_status(lambda status: status["outbox"]["pending"] == 0)
        assert status["slack"]["trouble"] == ""
        await is_answered(built, channel)


async def test_b12_what_send_says(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        assert "codebutler supervise" in await refused(built, "send", "sample", "hello")
        await served(built, git_repo)
        await built.supervise()
        assert "served: sample" in await refused(built, "send", "nobody", "hello")
        await refused(built, "send", "sample", "  ", code=2)
        await built.run("send", "sample", "list the files")
        failed = await built.run("send", "sample", "read no-such-file.md", "--wait", check=False)
        assert "no-such-file.md" in failed
        code = await exit_code(built, "send", "sample", "read no-such-file.md", "--wait")
        assert code == 1
        assert await exit_code(built, "send", "sample", "read README.md", "--wait") == 0
        # What no turn comes of: the reason is printed, nobody waits for ever.
        assert "has no checks" in await built.run("send", "sample", "!checks", "--wait", check=False)
        assert await exit_code(built, "send", "sample", "rehearsal:", "--wait") == 1
        assert "`codebutler audit`" in await refused(built, "send", "sample", "run: sudo reboot", "--wait")
        assert "refused: on the blocklist" in await built.run("audit")


async def test_b13_the_log_and_the_audit(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        await is_answered(built, channel)
        pong = await built.say(channel, "!ping")
        await built.answer(channel, pong, "pong")
        await built.stop()
        lines = [
            *built.log().splitlines(),
            *(built.home / "logs" / "codebutler.log").read_text().splitlines(),
        ]
        assert [line for line in lines if not LINE.match(line)] == []
        assert any(f" MSG  [sample] {built.workspace.workspace.person.name}:" in line for line in lines)
        audit = [json.loads(line) for line in (built.home / "logs" / "audit.jsonl").read_text().splitlines()]
        assert [(act["kind"], act["text"], act["decision"]) for act in audit] == [
            ("prompt", "list the files", "allowed"),
            ("rehearsal", "list the files", "done"),
            ("command ping", "!ping", "allowed"),
        ]
        assert {act["user"] for act in audit} == {built.workspace.workspace.person.id}
        assert verify(built.home / "logs" / "audit.jsonl") is None


async def exit_code(built: House, *arguments: str) -> int | None:
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        env=built.env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(DEADLINE_S):
        return await process.wait()


def notices(built: House, channel: str) -> list[str]:
    """What the bot has said in the channel outside of threads."""
    messages = built.workspace.workspace.channel(channel).messages.values()
    return [message.text for message in messages if message.by_app and message.thread_ts is None]


def set_revision(repo: Path, revision: str) -> None:
    """Make a store say that it is of another revision."""
    with closing(sqlite3.connect(repo / ".codebutler" / "store.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
