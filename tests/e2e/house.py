"""The whole product under test: an embedded workspace, a home, repositories and a real `codebutler supervise`.

The person in it is an ordinary Slack client (slack_sdk) with a user's token.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from slack_sdk.web.async_client import AsyncWebClient

from codebutler.config.paths import Home, RepoPaths
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.control import StatusReply, StatusRequest, ask
from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.state import MethodError
from tests import warm
from tests.commands import output_of
from tests.ordinary import give_logins_away, give_repository_away

DEADLINE_S = 45.0
LOOK_S = 0.2
T = TypeVar("T")
Message = dict[str, Any]
FINAL = {"white_check_mark", "x", "octagonal_sign"}


class House:
    """Everything one end-to-end case touches. Make it with ``house(...)``."""

    def __init__(self, workspace: WorkspaceServer, home: Path, env: dict[str, str]) -> None:
        self.workspace = workspace
        self.home = home
        self.env = env
        self.person = AsyncWebClient(workspace.user_token, base_url=workspace.api_url)
        self.person.proxy = None
        self.supervisor: asyncio.subprocess.Process | warm.WarmProcess | None = None
        self.repositories: list[Path] = []
        self.prefix: tuple[str, ...] = ()  # a program that runs ours, with its arguments

    # -- the command line

    async def run(self, *arguments: str, check: bool = True, deadline_s: float = DEADLINE_S) -> str:
        """Run one `codebutler` command to its end; returns what it printed."""
        whole = (*self.prefix, *command(*arguments))
        return await output_of(*whole, env=self.env, check=check, deadline_s=deadline_s)

    async def add_repo(self, path: Path, channel: str, **config: Any) -> str:
        """Register a repository, with a config of its own, on a channel of the workspace; returns the channel's ID."""
        channel_id = self.channel_id(channel)
        self.repositories.append(path)
        if config:
            paths = RepoPaths(path)
            with paths.open(create=True):
                before = json.loads(paths.config.read_text()) if paths.config.exists() else {}
                paths.config.write_text(json.dumps({**before, **config}))
        self.hand_over()
        # What it finds it trusts.
        await self.run("add-repo", str(path), "--channel", channel_id, "--name", channel)
        return channel_id

    def hand_over(self) -> None:
        """Where root runs the tests, what they have put into repositories and the home is an ordinary user's."""
        give_logins_away(Path(self.env["HOME"]))
        for repo in self.repositories:
            if repo.is_dir():
                give_repository_away(repo)

    async def supervise(self) -> None:
        """Start the supervisor and wait until it is connected and every worker is up."""
        await self.start_supervisor()
        await self.until_status(
            lambda status: (
                status["slack"]["state"] == "connected"
                and all(repo["worker"]["state"] in ("running", "sleeping") for repo in status["repos"])
            )
        )

    async def start_supervisor(self, through: Sequence[str] = ()) -> None:
        """Start the supervisor, by the program ``through`` if given, and wait for nothing."""
        self.hand_over()
        whole = (*through, *self.prefix, *command("supervise"))
        with (self.home / "supervise.out").open("ab") as log:
            self.supervisor = await warm.start_logged(whole, self.env, log)

    async def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Signal the supervisor and wait for its end; returns the exit code."""
        assert self.supervisor is not None
        if self.supervisor.returncode is None:
            self.supervisor.send_signal(signal_number)
        async with asyncio.timeout(DEADLINE_S):
            return await self.supervisor.wait()

    async def status(self) -> dict[str, Any] | None:
        """What `codebutler status --json` prints, None while no supervisor answers. Asked here: a process for each
        look would keep the supervisor from what it is waited for."""
        if self.prefix:  # only programs started through it may see the home
            output = await self.run("status", "--json", check=False)
            return json.loads(output) if output.startswith("{") else None
        try:
            async with aclosing(ask(Home(self.home).socket, StatusRequest())) as replies:
                async for reply in replies:
                    if isinstance(reply, StatusReply):
                        return reply.status
        except (CodeButlerError, OSError):
            return None
        return None

    async def until_status(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the status until it is as wanted. Raises AssertionError."""
        status: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while (status := await self.status()) is None or not wanted(status):
                    assert self.supervisor is None or self.supervisor.returncode is None, self.log()
                    await asyncio.sleep(LOOK_S)  # nobody would set an event
        except TimeoutError:
            raise AssertionError(f"never as wanted, last: {status}\n{self.log()}") from None
        return status

    def log(self) -> str:
        """What the supervisor has written so far."""
        return (self.home / "supervise.out").read_text(errors="replace")

    # -- the person

    def channel_id(self, name: str) -> str:
        return self.workspace.channel_id(name)

    async def say(self, channel: str, text: str, thread_ts: str | None = None) -> str:
        """Write as the person; returns the message's ts."""
        self.hand_over()
        answer = await self.person.chat_postMessage(channel=channel, text=text, thread_ts=thread_ts)
        return str(answer["ts"])

    async def click(self, channel: str, message_ts: str, action_id: str, value: str) -> None:
        """Press a button as the person, who presses again if Slack says after three seconds that nobody took it."""
        given = {"channel": channel, "message_ts": message_ts, "action_id": action_id, "value": value}
        person = self.workspace.workspace.person
        try:
            await self.workspace.interactions.click(person, given)
        except MethodError as error:
            if error.code != "operation_timeout":
                raise
            await self.workspace.interactions.click(person, given)

    def reactions(self, channel: str, ts: str) -> set[str]:
        """The names on one message."""
        message = self.message(channel, ts)
        return {reaction["name"] for reaction in message.get("reactions", [])}

    def message(self, channel: str, ts: str) -> Message:
        """One message as the workspace shows it now."""
        told = self.workspace.call("reactions.get", self.workspace.bot_token, channel=channel, timestamp=ts)
        found: Message = told["message"]
        return found

    async def until(self, what: str, look: Callable[[], T | None]) -> T:
        """The first true answer of ``look``, asked after every change of the workspace."""
        try:
            return await self.workspace.until(look, DEADLINE_S)
        except TimeoutError:
            raise AssertionError(f"never came: {what}\n{self.log()}") from None

    async def outcome(self, channel: str, ts: str) -> str:
        """Wait until the only reaction on the person's message is a final one; returns its name."""

        def look() -> str | None:
            names = self.reactions(channel, ts)
            return next(iter(names)) if len(names) == 1 and names <= FINAL else None

        return await self.until(f"the outcome of {ts}", look)

    def answers(self, channel: str, root: str, after: str = "") -> list[Message]:
        """What the bot has said in a thread since ``after``."""
        thread = self.workspace.thread(channel, root)
        return [message for message in thread if message.get("bot_id") and message["ts"] > (after or root)]

    async def answer(self, channel: str, root: str, containing: str, after: str = "") -> Message:
        """Wait for a message of the bot in the thread that contains a text."""

        def look() -> Message | None:
            said = self.answers(channel, root, after)
            return next((message for message in said if containing in whole_text(message)), None)

        return await self.until(f"an answer with {containing!r}", look)


def command(*arguments: str) -> list[str]:
    """`codebutler`, run by this interpreter."""
    return [*warm.OURS, *arguments]


def whole_text(message: Message) -> str:
    """A message's text and the text of its Markdown blocks."""
    blocks = [str(block.get("text", "")) for block in message.get("blocks", [])]
    return "\n".join([message.get("text", ""), *blocks])


def environment(workspace: WorkspaceServer, home: Path) -> dict[str, str]:
    """In which `codebutler` finds its home and the workspace, and nothing of this machine's."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.parent),
        "LANG": "C.UTF-8",
        "CODEBUTLER_HOME": str(home),
        "SLACK_API_URL": workspace.api_url,
    }


@asynccontextmanager
async def house(
    tmp_path: Path,
    *channels: str,
    extra_env: dict[str, str] | None = None,
    clock: Clock | None = None,
    cards: bool = False,
) -> AsyncIterator[House]:
    """A workspace with ``channels`` and a home set up for it; the supervisor is ended at the end. ``clock`` is the
    workspace's."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    async with WorkspaceServer(Options(channels=channels), clock) as workspace:
        built = House(workspace, home, environment(workspace, home) | (extra_env or {}))
        try:
            # As `codebutler setup` does (`test_operator.py` holds it to that), which takes a second each time.
            config = Home(home).ensure().config
            config.touch(mode=0o600)
            # Cards about changes would come between what most cases look at.
            quiet = {} if cards else {"output": {"changes": "off"}}
            config.write_text(json.dumps({"slack": workspace.section} | quiet))
            yield built
        finally:
            if built.supervisor is not None and built.supervisor.returncode is None:
                await built.stop()
