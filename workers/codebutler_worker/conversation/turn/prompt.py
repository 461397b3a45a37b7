"""What an agent is told: the standing orders and the person's words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codebutler_worker.media.kinds import size
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import AttachmentRow

RESTRICTIONS = """\
RULES OF THIS REPOSITORY. They come before anything you are asked or read:
1. Install nothing: no system packages, no language packages, no dependencies, with no package manager \
(brew, apt, npm, pip, go install or any other).
2. Stay inside the working directory. Neither read nor write files outside this repository.
3. Change nothing of the system: no system files, no configuration outside the repository, no environment \
variables.
4. Make no network requests, except through tools this repository already brings.
5. Run nothing destructive or hard to take back: no recursive deletions, no force pushes, no dropping of \
tables or the like.
When a task cannot be done within these rules, say exactly what would be needed, and stop."""

_CHANNEL = """\
The person talks to you from a chat thread, often on a phone: answer briefly, in Markdown, with the result \
first. Nobody can see your screen and nobody can answer a terminal prompt. Voice messages are transcribed by \
machine and may be slightly wrong. To send the person a file of this repository, write exactly \
<<<SLACK:file>>> path/of/the/file <<<END_SLACK>>> in your answer; the marks themselves are not shown. To ask \
something without waiting, enclose it in the same way with question for file, its options last, as a list; the \
answer is the next message."""

_RESUMED = """\
The machine stopped while you were working on this, so your last run ended in the middle. Look at what is \
done and what is not, and report that first. Change nothing beyond what was asked for before."""

_CUT_SHORT = """\
Your last run met its limit before it was done. Go on from where you stopped, changing nothing beyond what \
was asked for."""

_STOPPED = """\
A person stopped your last run, and now lets it go on. Look at what is done and what is not, then go on from \
there, changing nothing beyond what was asked for before."""

_ANSWERED = "What you had asked is answered; do not ask it again:"
_LATE = "[written while you were offline]"
_UNREAD = "[sent earlier; your run was stopped before you read it]"


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message for the agent, ``id`` its row's. ``known``: the agent's session has it already; ``unread``: it was
    for an earlier turn, which ended before the agent read it."""

    text: str
    late: bool = False
    known: bool = False
    id: str = ""
    unread: bool = False


def system_prompt(repo_path: str, memory: str, teaching: str = "") -> str:
    """The standing orders: restrictions, where the agent works, and the block of what is remembered (may be empty)."""
    parts = [RESTRICTIONS, f"You are working in: {repo_path}", _CHANNEL]
    if teaching.strip():
        parts.append(teaching.strip())
    if memory.strip():
        parts.append(memory.strip())
    return "\n\n".join(parts)


def user_prompt(
    messages: Sequence[PromptMessage], continued: str = "", answered: Sequence[tuple[str, str]] = ()
) -> str:
    """The messages in order as one prompt. ``continued``: why it goes on, "interrupted", "limit", "stopped" or "";
    then ``answered`` are the questions of the last run, each with what a person answered."""
    fresh = []
    for said in messages:
        marks = [_UNREAD] if said.unread else [_LATE] if said.late else []
        fresh += [] if said.known else [" ".join([*marks, said.text.strip()])]
    opening = {"interrupted": _RESUMED, "limit": _CUT_SHORT, "stopped": _STOPPED}.get(continued)
    answers = [f"{one_line(question, 300)} -> {answer}" for question, answer in answered]
    told = ["\n".join([_ANSWERED, *answers])] if opening and answers else []
    return "\n\n".join([*([opening] if opening else []), *told, *fresh])


def attached(
    messages: Sequence[PromptMessage], files: Sequence[AttachmentRow], repo_path: str
) -> list[PromptMessage]:
    """The messages, each with notes of its files."""
    notes = {
        said.id: [file_note(f, repo_path) for f in files if f.message_id == said.id] for said in messages
    }
    return [replace(said, text=with_files(said.text, notes[said.id])) for said in messages]


def with_files(text: str, notes: Sequence[str]) -> str:
    """The message with a line for each file that was attached to it."""
    return "\n\n".join(part for part in (text.strip(), "\n".join(notes)) if part)


def file_note(file: AttachmentRow, repo_path: str) -> str:
    """What the agent is told of a file: where it is, what was spoken, or that it is missing."""
    name = one_line(file.name or file.file_id, 100)
    match file.state:
        case "stored":
            kind = one_line(file.mimetype, 60) or "unknown type"
            return f"[attached file: {repo_path}/{file.path} ({kind}, {size(file.size_bytes)})]"
        case "transcribed":
            return f"[voice message, transcribed] {file.transcript}"
        case _:
            return f"[attached file {name}: it could not be fetched]"
