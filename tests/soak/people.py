"""People in the channels: they write, wait or do not, and answer what the house asks them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from functools import partial
from random import Random

from codebutler.workspace.records import Message, MethodError
from tests.history import FINAL, Said
from tests.soak.stage import WORK_FILE, Repo, Stage

CONTINUE, DROP = "codebutler.retry", "codebutler.drop"
PATIENCE_S = 15.0
CLICK_AGAIN_S = 2.0


class People:
    """One person per channel. ``said`` and ``continued`` are their part of the record."""

    def __init__(self, stage: Stage, rng: Random, pause_s: float) -> None:
        self.said: list[Said] = []
        self.continued: Counter[tuple[str, str]] = Counter()
        self._decided: dict[str, str] = {}
        self._stage = stage
        self._rng = rng
        self._pause_s = pause_s
        self._threads: dict[str, list[str]] = {}

    async def talk(self, repo: Repo) -> None:
        """Write in a channel for ever."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            for _ in range(self._rng.choice((1, 1, 2, 3))):
                said = self.say(repo)
                if self._rng.random() < 0.5:
                    with contextlib.suppress(TimeoutError):
                        await self._stage.built.workspace.until(partial(self._answered, said), PATIENCE_S)

    def say(self, repo: Repo, waits: float = 0.4) -> Said:
        """Ask for work that can be counted, in a new thread or one of the last; some of it takes a while."""
        threads = self._threads.setdefault(repo.channel, [])
        root = self._rng.choice(threads[-3:]) if threads and self._rng.random() < 0.7 else None
        token = f"token-{len(self.said):05d}"
        wait = "\n\nwait 3 seconds" if self._rng.random() < waits else ""
        text = f"append `{token}` to {WORK_FILE}{wait}"
        ts = self._stage.built.workspace.say(repo.channel, text, root)
        if root is None:
            threads.append(ts)
        said = Said(repo.channel, ts, root or ts, token)
        self.said.append(said)
        return said

    async def decide(self) -> None:
        """Answer questions for ever, Continue more often than Drop, sometimes twice."""
        pressed: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            for repo in self._stage.repos:
                for message in self._asked(repo):
                    if loop.time() - pressed.get(message.ts, -CLICK_AGAIN_S) >= CLICK_AGAIN_S:
                        pressed[message.ts] = loop.time()
                        await self._press(repo, message)
            await asyncio.sleep(0.2)

    async def _press(self, repo: Repo, message: Message) -> None:
        """A click that nobody took shows as a warning in Slack: then a person presses again, later."""
        action = CONTINUE if Random(message.ts).random() < 0.7 else DROP
        given = {"channel": repo.channel, "message_ts": message.ts, "action_id": action}
        if message.ts not in self._decided:
            self._decided[message.ts] = action
            self.continued[repo.channel, message.thread_ts or message.ts] += action == CONTINUE
        workspace = self._stage.built.workspace
        with contextlib.suppress(MethodError):
            for _ in range(self._rng.choice((1, 1, 2))):
                await workspace.interactions.click(workspace.workspace.person, given)

    @property
    def decisions(self) -> Counter[str]:
        """How often a question was answered with which button."""
        return Counter(self._decided.values())

    def _asked(self, repo: Repo) -> list[Message]:
        messages = self._stage.built.workspace.workspace.channel(repo.channel).messages.values()
        return [message for message in messages if message.by_app and DROP in _actions(message)]

    def over(self, said: Said) -> bool:
        """Its only mark is a final one."""
        message = self._stage.built.workspace.workspace.channel(said.channel).messages[said.ts]
        names = {name for name, people in message.reactions.items() if people}
        return len(names) == 1 and names <= FINAL

    def _answered(self, said: Said) -> bool | None:
        return self.over(said) or None

    @property
    def open(self) -> list[Said]:
        """What still waits for its outcome."""
        return [said for said in self.said if not self.over(said)]


def _actions(message: Message) -> set[str]:
    elements = [element for block in message.blocks for element in block.get("elements", [])]
    return {str(element.get("action_id")) for element in elements if isinstance(element, dict)}
