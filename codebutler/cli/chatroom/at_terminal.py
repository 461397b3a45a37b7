"""A chat at a terminal: typed text becomes requests, replies become lines."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

from codebutler.cli.chatroom import markdown
from codebutler.cli.chatroom.keyboard import ChatKeyboard, Interrupted, Lines, takes_escapes
from codebutler.cli.chatroom.link import ChatConnection, read_diary, write_diary
from codebutler.cli.chatroom.room import ChatRoom, ShownLine
from codebutler.cli.output import complain, notice, printable
from codebutler.config.paths import Home
from codebutler.config.programs import RUN
from codebutler.domain.command_help import completions
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import MessageRef
from codebutler.protocol.control import ChatOpened, ChatRequest, ControlReply, Posted

PROMPT = "you> "
MORE = "...> "
_STYLES: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"plain": str, "markdown": markdown.rendered, "code": markdown.code, "faint": markdown.faint}
)
STOP = "!stop"
HINT = "Ctrl-C stops the run, or exits; Ctrl-D exits; !help lists commands."


def converse(home: Home, repo: str, *, fresh: bool, past: int) -> None:
    """Chat until the person leaves. Raises CodeButlerError if the supervisor does not run, refuses or ends."""
    kept = read_diary(home)
    thread = None if fresh else kept.threads.get(repo)
    is_smart = takes_escapes(os.environ.get("TERM", ""))
    with ChatConnection(home.socket, ChatRequest(repo=repo, thread=thread, past=past)) as link:
        keyboard = ChatKeyboard(completable(), kept.typed, is_smart=is_smart)
        _Conversation(
            home, repo, link, keyboard, has_colour=is_smart and not os.environ.get("NO_COLOR")
        ).run()


def completable() -> list[str]:
    """Words for Tab completion."""
    prefixes = ("claude", "kimi", "agent", RUN.prefix)
    return [*(f"!{name}" for name, _ in completions()), *(f"{prefix}:" for prefix in prefixes)]


class _Conversation:
    """One chat, from the first line to the last."""

    def __init__(
        self, home: Home, repo: str, link: ChatConnection, keyboard: ChatKeyboard, *, has_colour: bool
    ) -> None:
        self._home = home
        self._repo = repo
        self._link = link
        self._keyboard = keyboard
        self._has_colour = has_colour
        self._room = ChatRoom()
        self._lines = Lines()
        self._heard: deque[ControlReply] = deque()
        self._is_open = False
        self._stopping = False

    def run(self) -> None:
        """Runs until the person leaves."""
        with self._keyboard.taken():
            staying = True
            while staying:
                try:
                    staying = self._turn()
                except Interrupted as interrupted:
                    staying = self._interrupted(interrupted.typed)
        notice(f"Saved in {self._repo}'s channel; `codebutler chat` continues this conversation.")

    def _turn(self) -> bool:
        """One typed line, or one reply; False at the end of file. From the first key to the end of the line
        nothing new is shown: the person is answering what is on the screen."""
        while self._heard and not self._keyboard.is_pressed():
            self._take(self._heard.popleft())
        ready = self._is_open and (self._room.asks or not self._room.is_busy)
        if not self._heard and not self._keyboard.wait(self._link.fileno(), PROMPT if ready else ""):
            self._heard.extend(self._link.replies())
            return True
        line = self._keyboard.line(MORE if self._lines.is_open else PROMPT)
        if line is None:
            return self._ended()
        message = self._lines.add(line)
        while message is None:
            line = self._keyboard.line(MORE)
            message = self._lines.end() if line is None else self._lines.add(line)
        self._say(message)
        return True

    def _ended(self) -> bool:
        """Ctrl-D: leave, and say what continues without us."""
        if self._room.is_busy:
            notice("The run continues; its answer appears in the chat.")
        return False

    def _say(self, message: str) -> None:
        if not message.strip():
            return
        self._keep(message)
        try:
            given = self._room.meaning(message)
        except CodeButlerError as error:
            complain(str(error))
            return
        self._link.enter(given)
        self._stopping = False

    def _interrupted(self, typed: str) -> bool:
        """Ctrl-C: clear the line, stop the run, or leave; False to leave."""
        typed = "\n".join(part for part in (self._lines.end(), typed) if part)
        notice("^C")
        if typed.strip():
            self._keep(typed)
            notice("(not sent; press Up to get it back)")
            return True
        if not self._room.is_busy:
            return False
        if self._stopping:
            notice("Stopping; its thread in the chat shows how it ended.")
            return False
        self._stopping = True
        self._link.enter(self._room.say(STOP))
        notice("(stopping the run; press Ctrl-C again to exit)")
        return True

    def _take(self, reply: ControlReply) -> None:
        for line in self._room.take(reply):
            self._show(line)
        match reply:
            case ChatOpened(agent=agent, thread=thread):
                self._is_open = True
                again = "Continuing your last conversation (--new starts another). " if thread else ""
                notice(f"Connected to {self._repo} ({agent}). {again}{HINT}")
            case Posted(thread=thread):
                self._keep_thread(thread)
        if not self._room.is_busy:
            self._stopping = False

    def _show(self, line: ShownLine) -> None:
        text = printable(line.text)
        if self._has_colour:
            if line.style == "fence":
                return
            text = _STYLES[line.style](text)
        stream = sys.stderr if line.style == "faint" else sys.stdout
        stream.write(f"{text}\n")
        stream.flush()

    def _keep(self, text: str) -> None:
        self._keyboard.remember(text)
        # A full disk must not prevent a chat.
        with suppress(CodeButlerError, OSError):
            write_diary(self._home, read_diary(self._home).with_typed(text))

    def _keep_thread(self, thread: MessageRef) -> None:
        with suppress(CodeButlerError, OSError):
            write_diary(self._home, read_diary(self._home).with_thread(self._repo, thread))
