"""Our own words: what ``!help``, ``!status`` and the like do. Each is one transaction and one reply."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from codebutler.config.schema import RepoSettings
from codebutler.model import Command
from codebutler.words import WORDS
from codebutler_worker.conversation.desk import Draft, Place
from codebutler_worker.conversation.naming import conversation_id
from codebutler_worker.conversation.queueing import Todo, withdraw_turn
from codebutler_worker.conversation.states import LIVE, UNFINISHED
from codebutler_worker.present.lines import code, count, one_line, plain
from codebutler_worker.store.rows import TurnRow, TurnState

LISTED = 10
_PLANNED = frozenset(WORDS) - {"c"}
DESCRIBE = "Say what the image should show: `!create-image a lighthouse at dusk, watercolour`."


@dataclass(frozen=True, slots=True)
class Asked:
    """A command in its context. ``conversation`` is None where it was said outside any thread."""

    draft: Draft
    settings: RepoSettings
    command: Command
    place: Place
    conversation: str | None

    def reply(self, text: str) -> None:
        self.draft.post(self.place, text)

    def turns(self, *states: TurnState) -> list[TurnRow]:
        """The turns meant: the conversation's, or all of the channel's."""
        found = self.draft.uow.turns.in_states(*states)
        return [turn for turn in found if self.conversation in (None, turn.conversation)]


def run_command(asked: Asked) -> Todo:
    """Do what was asked and reply; an unknown word gets the nearest one suggested."""
    name = asked.command.name
    handler = HANDLERS.get(name)
    if handler is not None:
        return handler(asked)
    if name in _PLANNED:
        asked.reply(f"{code('!' + name)} is not available here yet. Say `!help` for what is.")
        return Todo()
    near = difflib.get_close_matches(name, HANDLERS, n=1)
    hint = f"Did you mean `!{near[0]}`?" if near else "Say `!help` for what I know."
    asked.reply(f"I do not know {code('!' + one_line(name, 40))}. {hint}")
    return Todo()


def _help(asked: Asked) -> Todo:
    lines = [f"`!{name}`  {WORDS[name].gist}" for name in HANDLERS]
    default = asked.settings.config.agent.default
    asked.reply(
        "\n".join(
            [
                f"Write anything: {default} works on it in this repository. Reply in the thread to go on.",
                "`claude: …` asks that agent. The words I know:",
                *lines,
            ]
        )
    )
    return Todo()


def _ping(asked: Asked) -> Todo:
    asked.reply(f"pong from {plain(asked.settings.name)}")
    return Todo()


def _describe(asked: Asked) -> Todo:
    # With a description it is a turn; only the bare word comes here.
    asked.reply(DESCRIBE)
    return Todo()


def _status(asked: Asked) -> Todo:
    turns = asked.draft.uow.turns.in_states(*UNFINISHED)
    running = [turn for turn in turns if turn.state in LIVE]
    queued = [turn for turn in turns if turn.state == "queued"]
    head = f"*{plain(asked.settings.name)}*: {len(running)} running, {len(queued)} queued"
    asked.reply("\n".join([head, *(_line(asked.draft, turn) for turn in turns[:LISTED])]))
    return Todo()


def _list(asked: Asked) -> Todo:
    uow = asked.draft.uow
    whole = conversation_id(asked.settings.config, asked.settings.channel_id, "")
    conversations = dict.fromkeys([whole, *(row.conversation for row in uow.sessions.recent(LISTED))])
    latest = [turn for name in conversations if (turn := uow.turns.latest_of(name)) is not None]
    shown = [_line(asked.draft, turn) for turn in latest]
    asked.reply(
        "\n".join(["The latest conversations here:", *shown]) if shown else "No conversations here yet."
    )
    return Todo()


def _forget(asked: Asked) -> Todo:
    if asked.conversation is None:
        asked.reply("A message outside a thread starts fresh anyway. Say this inside the thread to reset.")
        return Todo()
    asked.draft.uow.sessions.forget(asked.conversation)
    asked.reply("Forgotten: the next message here starts a fresh session.")
    return Todo()


def _stop(asked: Asked) -> Todo:
    queued = asked.turns("queued")
    for turn in queued:
        withdraw_turn(asked.draft, turn)
    live = asked.turns(*LIVE)
    if not queued and not live:
        asked.reply("Nothing to stop here.")
        return Todo()
    parts = [f"Stopping {count(len(live), 'turn')}."] if live else []
    parts += [f"Withdrew {len(queued)} queued."] if queued else []
    asked.reply(f"🛑 {' '.join(parts)}")
    return Todo(stop=tuple(turn.id for turn in live))


def _line(draft: Draft, turn: TurnRow) -> str:
    messages = draft.uow.messages.of_turn(turn.id)
    words = one_line(messages[0].content, 80) if messages else "…"
    return f"• {turn.state} · {plain(turn.agent)} · {plain(words)}"


HANDLERS: Mapping[str, Callable[[Asked], Todo]] = {
    "help": _help,
    "ping": _ping,
    "status": _status,
    "list": _list,
    "new": _forget,
    "reset": _forget,
    "stop": _stop,
    "kill": _stop,
    "create-image": _describe,
}
