"""Attacks on the whole product: by strangers, by what a repository holds, by an agent, by other programs here.

| case | what is tried |
|---|---|
| A01 | a stranger by message, thread, edit, deletion, button and slash command, also while a turn runs |
| A02 | tokens in the environment, the arguments or the descriptors of any process of ours |
| A03 | secrets through an answer, a file's name, progress, the log and the audit log |
| A04 | mentions in what an agent says |
| A05 | words that look like options and commands of the agent's program |
| A06 | control characters: forged log lines, a driven terminal |
| A07 | a stranger's text made to keep a pattern busy |
| A08 | links in the repository to the home and to another repository |
| A09 | a repository's configuration that takes the walls down |
| A10 | forged button values: another channel's turn, nobody's turn, a turn that is over |
| A11 | garbage on the control socket |
| A12 | the workspace's endpoints from another site, another name, without a token |
| A13 | files of ours that others could read |
| A14 | hooks in the work tree (husky), written by an agent for the owner's next commit |
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from codebutler.config.paths import Home
from tests.e2e.house import House, house, whole_text
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require

QUICK = {"debounceSeconds": 0, "default": "rehearsal"}


async def served(built: House, repo: Path, name: str = "sample") -> str:
    """A repository answered by the rehearsal agent; returns the channel."""
    require("bwrap")
    return await built.add_repo(repo, name, agent=QUICK)


def family(pid: int) -> Iterator[Path]:
    """The /proc directories of a process and all below it."""
    yield Path(f"/proc/{pid}")
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from family(int(child))


def audit_lines(built: House) -> list[dict[str, object]]:
    return [json.loads(line) for line in (built.home / "logs" / "audit.jsonl").read_text().splitlines()]


def all_said(built: House, channel: str) -> str:
    """Every message of a channel, with its threads."""
    messages = built.workspace.workspace.channel(channel).messages.values()
    return "\n".join(f"{message.text} {json.dumps(message.blocks)}" for message in messages)


async def test_a01_a_stranger_gets_nowhere_on_any_path(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        mallory = built.workspace.add_user("mallory")
        ts = await built.say(channel, "wait 600")
        stop = await built.until("the stop button", lambda: button(built, channel, ts))
        workspace, interactions = built.workspace, built.workspace.interactions
        workspace.say(channel, "create owned.txt with hello", user=mallory)
        workspace.say(channel, "!stop", ts, user=mallory)
        own = workspace.say(channel, "hm", ts, user=mallory)
        workspace.call("chat.update", mallory.token, channel=channel, ts=own, text="create owned.txt with x")
        workspace.call("chat.delete", mallory.token, channel=channel, ts=own)
        await interactions.click(mallory, {"channel": channel, "action_id": "codebutler.stop", **stop})
        await interactions.slash(mallory, {"channel": channel, "command": "/butler", "text": "stop"})
        await built.until("the refusal", lambda: "not authorized" in all_said(built, channel) or None)
        await built.say(channel, "!ping")
        await built.until("an answer", lambda: "pong" in all_said(built, channel) or None)
        await built.until("the turn still at work", lambda: built.reactions(channel, ts) == {"eyes"} or None)
        assert all_said(built, channel).count("not authorized") == 1
        assert not (git_repo / "owned.txt").exists()
        refused = [line for line in audit_lines(built) if line["user"] == mallory.id]
        kinds = sorted(str(line["kind"]).split()[0] for line in refused)
        assert kinds == ["MessageDeleted", "button", "command", "prompt"]
        assert all(str(line["decision"]).startswith("refused") for line in refused)
        await built.say(channel, "!stop", ts)
        assert await built.outcome(channel, ts) == "octagonal_sign"


async def test_a02_no_process_of_ours_carries_a_token(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        tokens = [built.workspace.bot_token.encode(), built.workspace.app_token.encode()]
        names = ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN")
        built.env.update({name: token.decode() for name, token in zip(names, tokens, strict=True)})
        channel = await served(built, git_repo)
        await built.supervise()
        ts = await built.say(channel, "wait 600")
        await built.until("the program at work", lambda: "Wait: 600" in all_said(built, channel) or None)
        assert built.supervisor is not None
        below = [place for place in family(built.supervisor.pid) if place.name != str(built.supervisor.pid)]
        commands = [(place / "cmdline").read_bytes() for place in below]
        assert any(b"sleep" in command for command in commands)
        assert any(b"forkserver" in command for command in commands)
        for place in below:
            held = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            assert not any(token in held for token in tokens)
            assert b"SLACK_" not in held
            opened = [str(link.readlink()) for link in (place / "fd").iterdir()]
            kept = [path for path in opened if str(built.home) in path]
            assert set(kept) <= {str(built.home / "supervise.out")}
        # Nor does a crash write one down: the supervisor's own memory holds them.
        limits = [(place / "limits").read_text() for place in family(built.supervisor.pid)]
        assert all(re.search(r"^Max core file size +0 +0 ", told, re.MULTILINE) for told in limits)
        await built.say(channel, "!stop", ts)
        assert await built.outcome(channel, ts) == "octagonal_sign"


async def test_a03_no_secret_leaves(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        token = built.workspace.bot_token
        encoded = base64.b64encode(f"token={token}".encode()).decode()
        (git_repo / "leak.txt").write_text(f"a {token} b {token.encode().hex()} c {encoded} d\n")
        channel = await served(built, git_repo)
        await built.supervise()
        ts = await built.say(channel, "read leak.txt")
        answer = await built.answer(channel, ts, "[redacted]")
        second = await built.say(channel, f"create {token}.txt with hello")
        await built.outcome(channel, second)
        log = (built.home / "logs" / "codebutler.log").read_text()
        audit = (built.home / "logs" / "audit.jsonl").read_text()
        ours = [
            whole_text(message) for message in [*built.answers(channel, ts), *built.answers(channel, second)]
        ]
        for told in [whole_text(answer), *ours, log, audit, built.log()]:
            assert token not in told
            assert token.encode().hex() not in told
            assert encoded not in told


async def test_a04_an_agent_pings_nobody(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        person = built.workspace.workspace.person.id
        (git_repo / "ping.md").write_text(
            f"<!channel> <!here> <@{person}> @channel @everyone <!subteam^S1>\n"
        )
        (git_repo / "<!here>.md").write_text("hi\n")
        channel = await served(built, git_repo)
        await built.supervise()
        for words in ("read ping.md", "list the files", "search for <!here>"):
            ts = await built.say(channel, words)
            await built.outcome(channel, ts)
            for message in built.answers(channel, ts):
                said = json.dumps(message, ensure_ascii=False)
                for ping in ("<!", "<@", "@channel", "@everyone"):
                    assert ping not in said.replace(f'"<@{person}>"', "")


async def test_a05_words_never_become_options_or_commands(tmp_path: Path, git_repo: Path) -> None:
    require("bwrap")
    binary = require("claude")
    async with ModelServer() as model:
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-api03-not-a-real-key"}
        async with house(tmp_path, "sample", extra_env=env) as built:
            agent = {"debounceSeconds": 0, "default": "claude"}
            channel = await built.add_repo(git_repo, "sample", agent=agent, claude={"binary": str(binary)})
            await built.supervise()
            hostile = [
                "--dangerously-skip-permissions",
                "/clear now",
                " /login",
                "-p --mcp-config evil.json",
                "/config",
            ]
            for number, words in enumerate(hostile):
                model.play(Reply(f"Heard {number}.", hold=number == 0))
                ts = await built.say(channel, words)
                if number == 0:
                    await model.seen(1)
                    assert built.supervisor is not None
                    for place in family(built.supervisor.pid):
                        assert b"dangerously" not in (place / "cmdline").read_bytes()
                    model.release.set()
                await built.answer(channel, ts, f"Heard {number}.")
                assert words.strip() in model.said(number)


async def test_a06_control_characters_forge_nothing(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        (git_repo / "term.txt").write_text("a\x1b]0;owned\x07b\x1b[2Jc\rd\u202ee\n")
        await served(built, git_repo)
        await built.supervise()
        forged = "list the files\n2026-02-14 15:04:05 ERR  forged\x1b[31m"
        ts = built.workspace.say("sample", forged)
        await built.outcome(built.channel_id("sample"), ts)
        printed = await built.run("send", "sample", "read term.txt", "--wait")
        assert "owned" in printed
        for told in (printed, built.log(), await built.run("logs", "sample")):
            assert not {"\x1b", "\x07", "\r", "\u202e"} & set(told)
        assert not any(
            line.endswith("forged") for line in built.log().splitlines() if line.startswith("2026-02-14")
        )


async def test_a07_a_strangers_text_keeps_nobody_waiting(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        await built.supervise()
        mallory = built.workspace.add_user("mallory")
        for hostile in ("-eyJ", "eyJaaaaaaaa.-eyJ", "a://b:", "&lt;", "<@", "!a ", "rm -r"):
            for _ in range(5):
                built.workspace.say(channel, hostile * (38_000 // len(hostile)), user=mallory)
        async with asyncio.timeout(10):
            ts = await built.say(channel, "!ping")
            await built.answer(channel, ts, "pong")


async def test_a08_links_lead_nowhere(tmp_path: Path, git_repo: Path) -> None:
    other = shutil.copytree(git_repo, tmp_path / "other")
    (other / "private.txt").write_text("another repository's secret")
    async with house(tmp_path, "sample") as built:
        (git_repo / "config.txt").symlink_to(built.home / "config.json")
        (git_repo / "theirs").symlink_to(other)
        (git_repo / "environ").symlink_to("/proc/1/environ")
        require("bwrap")
        quiet = {"verbosity": "quiet"}
        channel = await built.add_repo(git_repo, "sample", agent=QUICK, output=quiet)
        await built.supervise()
        asked = (
            "read config.txt", "read theirs/private.txt", "read environ", f"read {built.home}/config.json",
            "create .git/hooks/post-checkout with touch owned",
        )  # fmt: skip
        for ts in [await built.say(channel, words) for words in asked]:
            assert await built.outcome(channel, ts) in ("x", "white_check_mark")
        said = all_said(built, channel)
        assert "another repository's secret" not in said
        assert "botToken" not in said
        assert "PATH=" not in said
        assert not (git_repo / ".git" / "hooks" / "post-checkout").exists()


async def test_a09_a_changed_configuration_takes_no_wall_down(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        mallory = built.workspace.add_user("mallory")
        file = git_repo / ".codebutler" / "config.json"
        config = json.loads(file.read_text())
        config |= {
            "sandbox": {"mode": "none", "network": "open", "hosts": ["evil.example"]},
            "claude": {"binary": "./evil", "permissionMode": "bypassPermissions", "extraArgs": ["--x"]},
            "commands": [{"prefix": "claude", "binary": "./evil"}],
        }
        config["slack"] |= {"allowedUsers": [mallory.id], "apiBaseUrl": "http://127.0.0.1:9/"}
        file.write_text(json.dumps(config))
        printed = await built.run("config", "sample", "--json")
        shown = json.loads(printed[printed.index("{") :])
        assert shown["config"]["sandbox"]["mode"] == shown["config"]["sandbox"]["network"] == "auto"
        assert shown["config"]["sandbox"]["hosts"] == []
        assert "./evil" not in json.dumps(shown["config"])
        await built.supervise()
        await built.until(
            "the warning", lambda: "codebutler trust sample" in all_said(built, channel) or None
        )
        ts = built.workspace.say(channel, "create owned.txt with hello", user=mallory)
        await built.answer(channel, ts, "not authorized")
        assert not (git_repo / "owned.txt").exists()


async def test_a10_a_forged_button_does_nothing(tmp_path: Path, git_repo: Path) -> None:
    other = shutil.copytree(git_repo, tmp_path / "other")
    async with house(tmp_path, "sample", "other") as built:
        here, there = await served(built, git_repo), await served(built, other, "other")
        await built.supervise()
        ts = await built.say(here, "wait 600")
        stop = await built.until("the stop button", lambda: button(built, here, ts))
        done = await built.say(there, "list the files")
        answer = await built.answer(there, done, "README.md")
        await built.outcome(there, done)
        for action in ("codebutler.stop", "codebutler.retry", "codebutler.drop", "codebutler.allow", "x"):
            for value in (stop["value"], "nobody's", "", "../" + stop["value"], "x" * 3000):
                await built.click(there, answer["ts"], action, value)
        again = await built.say(there, "!ping")
        await built.answer(there, again, "pong")
        assert built.reactions(here, ts) == {"eyes"}
        assert built.reactions(there, done) == {"white_check_mark"}
        await built.click(here, stop["message_ts"], "codebutler.stop", stop["value"])
        assert await built.outcome(here, ts) == "octagonal_sign"


async def test_a11_the_control_socket_is_the_owners_and_survives(tmp_path: Path, git_repo: Path) -> None:
    async with house(tmp_path, "sample") as built:
        await served(built, git_repo)
        await built.supervise()
        path = Home(built.home).socket
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for line in (
            b"\n",
            b"garbage\n",
            b'{"do":"exec"}\n',
            b"\xff\xfe\n",
            b"[" * 200_000 + b"\n",
            b"x" * 5_000_000,
        ):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(line)
            try:
                await writer.drain()
                writer.write_eof()
                async with asyncio.timeout(10):
                    assert b'"failed"' in await reader.read()
            except ConnectionError:
                assert len(line) > 4_000_000
            writer.close()
        assert await built.status() is not None


FOREIGN = (
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
)


async def test_a12_the_workspace_listens_to_this_machine_only(tmp_path: Path) -> None:
    async with house(tmp_path, "sample") as built, aiohttp.ClientSession() as session:
        url, token = built.workspace.context.url, built.workspace.user_token
        bearer = {"Authorization": f"Bearer {token}"}
        for method, path in (("GET", "/"), ("GET", "/workspace/boot"), ("POST", "/api/auth.test")):
            for headers in ({}, *FOREIGN):
                async with session.request(method, url + path, headers={**bearer, **headers}) as answer:
                    assert (answer.status == 200) == (not headers), (path, headers)
        for path in ("boot", "stream", "faults"):
            for wrong in ("", "Bearer x", f"Bearer {built.workspace.bot_token}"):
                given = {"Authorization": wrong} if wrong else {}
                async with session.get(f"{url}/workspace/{path}", headers=given) as answer:
                    assert answer.status == 401
        async with session.get(url + "/") as answer:
            assert token not in await answer.text()


async def test_a13_what_is_ours_is_private(tmp_path: Path, git_repo: Path) -> None:
    before = os.umask(0o002)
    try:
        async with house(tmp_path, "sample") as built:
            channel = await served(built, git_repo)
            await built.supervise()
            ts = await built.say(channel, "list the files")
            await built.outcome(channel, ts)
            kept = [built.home, git_repo / ".codebutler"]
            assert stat.S_IMODE(kept[0].stat().st_mode) == 0o700
            # Through root's the owner, alone in his group, walks to what agents share.
            assert stat.S_IMODE(kept[1].stat().st_mode) == (0o710 if os.geteuid() == 0 else 0o700)
            files = [path for root in kept for path in root.rglob("*") if path.is_file()]
            loose = [path for path in files if path.stat().st_mode & 0o007 and path.name != "supervise.out"]
            assert {"journal.db", "audit.jsonl", "store.db", "config.json"} <= {path.name for path in files}
            assert loose == []
    finally:
        os.umask(before)


def button(built: House, channel: str, ts: str) -> dict[str, str] | None:
    """The stop button of the thread: its message and its value."""
    for message in built.answers(channel, ts):
        for block in message.get("blocks", []):
            for element in block.get("elements", []):
                if element.get("action_id") == "codebutler.stop":
                    return {"message_ts": message["ts"], "value": element["value"]}
    return None


def owners_git(repo: Path, *words: str) -> None:
    own = ("-c", "safe.directory=*", "-c", "user.name=o", "-c", "user.email=o@example.org")
    subprocess.run(("git", *own, *words), cwd=repo, check=True)


async def test_a14_hooks_in_the_work_tree_run_nothing_of_an_agents(tmp_path: Path, git_repo: Path) -> None:
    """Husky's layout; the owner's hook runs, and the agent goes on working and committing."""
    hooks = git_repo / ".husky" / "_"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text('#!/bin/sh\nsh -e "$(dirname "$0")/../pre-commit"\n')
    (hooks / "pre-commit").chmod(0o755)
    (hooks.parent / "pre-commit").write_text("touch checked\n")
    owners_git(git_repo, "config", "core.hooksPath", ".husky/_")
    async with house(tmp_path, "sample") as built:
        channel = await served(built, git_repo)
        told = json.loads(await built.run("doctor", "--json"))
        assert any(
            each["subject"] == "sample" and ".husky: read-only for agents" in each["text"]
            for each in told["findings"]
        ), told
        await built.supervise()
        for place in (".husky/pre-commit", ".husky/_/pre-commit", ".husky/_/commit-msg"):
            ts = built.workspace.say(channel, f"run: echo touch pwned >> {place}")
            await built.answer(channel, ts, "Read-only file system")
        ts = built.workspace.say(
            channel,
            "run: echo x > new && git add new && git -c user.name=a -c user.email=a@x.org commit -qm new && ls",
        )
        await built.answer(channel, ts, "checked")
    (git_repo / "checked").unlink()
    owners_git(git_repo, "commit", "-q", "--allow-empty", "-m", "the owner's")
    assert (git_repo / "checked").exists()
    assert not (git_repo / "pwned").exists()
