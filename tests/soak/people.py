"""People in the channels: they write, wait or do not, and answer what the house asks them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random

from codebutler.workspace.state import Message, MethodError
from tests.history import FINAL, Said, is_spoken
from tests.soak.asks import Ask, ask, is_allowed
from tests.soak.stage import Repo, Stage

CONTINUE, DROP = "codebutler.retry", "codebutler.drop"
ALLOW, DENY = "codebutler.allow", "codebutler.deny"
QUESTIONS = {DROP, ALLOW}
OLD = re.compile(r"old-(\d+)\.txt")
# Before it is begun, while it is at work, or after its answer.
EDIT_AFTER_S = (0.0, 0.3, 1.0, 5.0)
PATIENCE_S = 15.0
CLICK_AGAIN_S = 2.0


class People:
    """One person per channel. ``said`` and ``continued`` are their part of the record."""

    def __init__(self, stage: Stage, rng: Random, pause_s: float, mix: Mapping[str, int]) -> None:
        self.kinds: Counter[str] = Counter()
        self.said: list[Said] = []
        self.continued: Counter[tuple[str, str]] = Counter()
        self._decided: dict[str, str] = {}
        self._stage = stage
        self._rng = rng
        self._pause_s = pause_s
        self._mix = mix
        self._edits: list[tuple[float, Said, str]] = []
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

    def say(self, repo: Repo) -> Said:
        """Ask for work that can be counted, in a new thread or one of the last."""
        threads = self._threads.setdefault(repo.channel, [])
        root = self._rng.choice(threads[-3:]) if threads and self._rng.random() < 0.7 else None
        [kind] = self._rng.choices(list(self._mix), list(self._mix.values()))
        self.kinds[kind] += 1
        number = len(self.said)
        wish = ask(kind, number)
        if wish.old:
            repo.put(wish.old)
        ts = self._write(repo, wish, root)
        if root is None:
            threads.append(ts)
        allowed = is_allowed(number)
        said = Said(
            channel=repo.channel,
            ts=ts,
            root=root or ts,
            token=wish.token,
            instead=wish.instead,
            lines=wish.lines,
            gone=wish.old if allowed else "",
            kept="" if allowed else wish.old,
            is_timer=wish.is_timer,
        )
        self.said.append(said)
        if wish.edited:
            at_s = asyncio.get_running_loop().time() + self._rng.choice(EDIT_AFTER_S)
            self._edits.append((at_s, said, wish.edited))
        return said

    def _write(self, repo: Repo, wish: Ask, root: str | None) -> str:
        """Returns the message's ts."""
        workspace = self._stage.built.workspace
        if not wish.paper:
            return workspace.say(repo.channel, wish.text, root)
        content = wish.paper.encode()
        name, length = f"{wish.token}.txt", str(len(content))
        given = {"filename": name, "length": length}
        file_id = workspace.call("files.getUploadURLExternal", workspace.user_token, **given)["file_id"]
        workspace.workspace.files[file_id].content = content
        workspace.call(
            "files.completeUploadExternal",
            workspace.user_token,
            files=[{"id": file_id}],
            channel_id=repo.channel,
            thread_ts=root,
            initial_comment=wish.text,
        )
        return max(workspace.workspace.channel(repo.channel).messages)

    async def decide(self) -> None:
        """Answer questions for ever, Continue more often than Drop, sometimes twice; and edit what was said."""
        pressed: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            for repo in self._stage.repos:
                for message in self._asked(repo):
                    if loop.time() - pressed.get(message.ts, -CLICK_AGAIN_S) >= CLICK_AGAIN_S:
                        pressed[message.ts] = loop.time()
                        await self._press(repo, message)
            self._edit([edit for edit in self._edits if edit[0] <= loop.time()])
            await asyncio.sleep(0.2)

    def _edit(self, due: list[tuple[float, Said, str]]) -> None:
        workspace = self._stage.built.workspace
        for edit in due:
            _, said, text = edit
            self._edits.remove(edit)
            workspace.call("chat.update", workspace.user_token, channel=said.channel, ts=said.ts, text=text)

    async def _press(self, repo: Repo, message: Message) -> None:
        """A click that nobody took shows as a warning in Slack: then a person presses again, later."""
        if message.ts not in self._decided:
            self._decided[message.ts] = self._decision(repo, message)
        action = self._decided[message.ts]
        given = {"channel": repo.channel, "message_ts": message.ts, "action_id": action}
        workspace = self._stage.built.workspace
        with contextlib.suppress(MethodError):
            for _ in range(self._rng.choice((1, 1, 2))):
                await workspace.interactions.click(workspace.workspace.person, given)

    def _decision(self, repo: Repo, message: Message) -> str:
        if DROP not in _actions(message):
            number = OLD.findall(json.dumps(message.blocks))[0]
            return ALLOW if is_allowed(int(number)) else DENY
        action = CONTINUE if Random(message.ts).random() < 0.7 else DROP
        self.continued[repo.channel, message.thread_ts or message.ts] += action == CONTINUE
        return action

    @property
    def decisions(self) -> Counter[str]:
        """How often a question was answered with which button."""
        return Counter(self._decided.values())

    def _asked(self, repo: Repo) -> list[Message]:
        messages = self._stage.messages(repo).values()
        return [message for message in messages if message.by_app and QUESTIONS & _actions(message)]

    def over(self, said: Said) -> bool:
        """Its only mark is a final one."""
        names = self._marks(said)
        return len(names) == 1 and names <= FINAL

    def _marks(self, said: Said) -> set[str]:
        """Of a timer, those of what is said then."""
        messages = self._stage.built.workspace.workspace.channel(said.channel).messages
        own: Message | None = messages[said.ts]
        if said.is_timer:
            replies = (messages[ts] for ts in messages[said.root].replies)
            own = next((reply for reply in replies if is_spoken(said, reply.text)), None)
        return {name for name, people in own.reactions.items() if people} if own else set()

    def _answered(self, said: Said) -> bool | None:
        return self.over(said) or None

    def open(self) -> list[Said]:
        """What still waits for its outcome, or for its other marks to be taken away."""
        return [said for said in self.said if not self.over(said)]

    def unmarked(self) -> list[Said]:
        """What has no final mark."""
        return [said for said in self.said if not self._marks(said) & FINAL]


def _actions(message: Message) -> set[str]:
    elements = [element for block in message.blocks for element in block.get("elements", [])]
    return {str(element.get("action_id")) for element in elements if isinstance(element, dict)}
