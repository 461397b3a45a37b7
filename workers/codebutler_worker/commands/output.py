"""``!output``: what the last turn said, whole."""

from __future__ import annotations

from msgspec import structs

from codebutler.config.programs import program_names
from codebutler.domain.model import Post
from codebutler.text.markup import fence, plain
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import age, words_of
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.answer import answer
from codebutler_worker.present.lines import code, one_line

LOOKED_AT = 50
NOTHING = "No run has said anything here yet."
FILE_BY_MESSAGE = "Say `!output` in the channel to get the rest as a file."


def run(asked: Asked) -> Todo:
    """The newest turn's text; while one runs, also what it was last seen at."""
    turns = asked.newest(LOOKED_AT)
    live = next((turn for turn in turns if turn.state in LIVE), None)
    if live is not None:
        seen = f" It was last seen at {code(live.result)}." if live.result else ""
        asked.reply(f"👀 {plain(live.agent)} is still working.{seen}")
    turn = next((each for each in turns if each.state not in LIVE and each.result), None)
    if turn is None:
        return Todo() if live is not None else asked.reply(NOTHING)
    asked_for = plain(one_line(words_of(asked.draft, turn, 60)))
    foot = f"_{turn.state}: {plain(turn.agent)}, {asked_for}, {age(asked.draft, turn)}_"
    limit = asked.settings.config.output.max_chars_per_message
    said = turn.result or ""
    if turn.agent in program_names(asked.settings.config):
        # What a program writes is no Markdown.
        said = fence(said)
    for operation in answer(said, foot, asked.place.thread_ts, limit, redact=asked.draft.redact):
        if not asked.place.only_for:
            asked.draft.add(asked.place, operation)
        elif isinstance(operation, Post):
            asked.draft.add(asked.place, structs.replace(operation, only_for=asked.place.only_for))
        else:
            asked.reply(FILE_BY_MESSAGE)
    return Todo()
