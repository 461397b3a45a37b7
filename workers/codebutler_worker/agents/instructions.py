"""What agents are told besides their task: what the repository says, and how to mark what people shall read at once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path

from codebutler_worker.sandbox.destinations import read_head, read_regular
from codebutler_worker.store.state_dir import STATE_DIR

# What a checkout tells agents (CLAUDE.md, AGENTS.md), read without trusting the checkout.

LIMIT_BYTES = 64 * 2**10


def repository_says(workdir: Path, files: Iterable[str]) -> str:
    """A section for each of ``files`` below ``workdir`` that says something, as Markdown; a longer one is cut.

    What is no regular file, or is reached over a symbolic link, says nothing.
    """
    sections = []
    for name in files:
        with contextlib.suppress(OSError):
            text = read_head(workdir, name, LIMIT_BYTES).decode(errors="replace").strip()
            sections += [f"# The repository's {name}\n\n{text}"] if text else []
    return "\n\n".join(sections)


# How an agent is told to mark what people shall read at once. The file may be edited; the marks are described in
# words, so that no echo of them is taken for a message.

DEFAULT = """\
[SLACK WRAPPER]
A person gave you this task from a chat thread. What you write is recorded in a log; the person does not see it \
as you work. To tell the person something at once, enclose it in markers. The opening marker is three less-than \
signs, the word SLACK, three greater-than signs. The closing marker is three less-than signs, the word END_SLACK, \
three greater-than signs. A type may follow SLACK, after a colon: progress, question, warning, done or error.
Enclose what the person should know or decide: results, questions, warnings, important steps. Do not enclose file \
contents, diffs, test output or routine steps. The person can read the whole log with !logs.
[END SLACK WRAPPER]"""

log = logging.getLogger(__name__)


def instructions(repo: Path, prompt_file: str) -> str:
    """The text of ``envelope.promptFile``: an absolute path, or one below the repository's ``.codebutler``. Without
    one, or if it cannot be read, our own."""
    if not prompt_file:
        return DEFAULT
    path = Path(prompt_file).expanduser()
    root, relative = (path.parent, path.name) if path.is_absolute() else (repo, f"{STATE_DIR}/{path}")
    try:
        return read_regular(root, relative, LIMIT_BYTES).decode(errors="replace").strip() or DEFAULT
    except OSError as error:
        log.warning("envelope.promptFile %s: %s; the built-in text is used", prompt_file, error.strerror)
        return DEFAULT
