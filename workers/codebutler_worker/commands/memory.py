"""``!memory``: what agents are told about this repository besides the prompt."""

from __future__ import annotations

from pathlib import Path

from codebutler_worker.commands.asked import Asked
from codebutler_worker.conversation.memory_file import read_memory
from codebutler_worker.conversation.queueing import Todo
from codebutler_worker.present.lines import fenced
from codebutler_worker.store.state_dir import STATE_DIR

NOTHING = (
    "Nothing is remembered here. What you write into `.codebutler/memory.md` is told to every new session."
)


def run(asked: Asked) -> Todo:
    """Show ``memory.md``."""
    text = read_memory(Path(asked.settings.path) / STATE_DIR).strip()
    if not text:
        return asked.reply(NOTHING)
    shown, hidden = fenced(text, asked.settings.config.output.max_chars_per_message)
    more = f"\n… and {hidden} more characters in `.codebutler/memory.md`." if hidden else ""
    return asked.reply(f"Every new session is told:\n{shown}{more}")
