"""What we say about a run besides its answer: interrupted, failed, parked, stopped, edited, undone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from codebutler.domain.message import (
    ASK_AGAIN_ACTION,
    DROP_ACTION,
    RETRY_ACTION,
    WAIT_ACTION,
    Button,
    Message,
    said,
)
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.text.markup import plain
from codebutler.text.wording import count, one_line, span
from codebutler_worker.present.lines import code, fenced, person
from codebutler_worker.present.progress import TurnProgress
from codebutler_worker.store.rows import TurnState
from codebutler_worker.tree.tree import PutBack

MOST_FILES = 5
MEND_THE_CAUSE = (
    "Mend the cause in what you changed. Do not weaken, skip or delete a check or a test to make it pass; if a failure "
    "has nothing to do with your changes, say so and stop."
)
"""The prompt for an agent that is to fix failing checks."""
CONTINUED = "▶ Continued."
DROPPED = "🛑 Dropped."


WRITTEN_LATE = "🕰️ _you wrote this while I was offline_"
"""Goes to the end of an answer: a separate message would count against the chat's limits."""
LATE = "🕰️ You wrote this while I was offline. Working on it now."
CROWDED_TEXT = "📚 Too many of your messages are already waiting here, so this one is on hold."
STILL_CROWDED = "📚 There is still no room for this: your other messages come first."
LATE_COMMAND = "🕰️ I was offline when you wrote that. Send it again if you still need it."
RESUMED = "▶ Resumed."
RESTARTING = "🔄 CodeButler is restarting. This run resumes as soon as it is back."
ANOTHER = ":"
"""Separates turn and agent in the value of a button that continues with another agent."""
TEXT_CHARS = 300
AGAIN = "✏️ Asked again with the edited text."
COMMAND = (
    "✏️ This message has been handled already, so editing it into a command runs nothing. Send the command as a new "
    "message."
)
_ANSWERED = "✏️ You edited a message that is already answered. The answer is for the original text."
_LIVE = "✏️ You edited a message I am working on. This run continues with the original text."
_ENDED = "✏️ You edited a message after its run had started. That run used the original text."
UNDO_ACTION = "codebutler.undo"
PATHS_LISTED = 30
PATHS_CHARS = 1800
UNDO_BUSY = "An agent is running and may be writing: send `!stop` or wait until it ends, then `!undo`."
NO_SNAPSHOT = "There is nothing to undo here: no run has changed a file that git does not ignore."
NOTHING_CHANGED = "The last run here ({words}, {when}) left nothing to undo."
ALREADY_UNDONE = "That was already undone. `!undo` reverses the latest change."
UNDOING = "↩ {verb} “{words}”\n✅ Confirmed by {who}."


def stale_text(request: str) -> str:
    """A request so old that it may no longer count."""
    return f"🕰️ You wrote this while I was offline for a long time: _{plain(one_line(request)) or '…'}_."


def stale(turn_id: str, request: str) -> Message:
    """Asks whether it still counts."""
    return _continue_or_drop(turn_id, f"{stale_text(request)}\nDo you still want this?")


def handled_text(request: str) -> str:
    """A request that we may have worked on before the store was restored."""
    return (
        f"🕰️ I may have worked on this before: _{plain(one_line(request)) or '…'}_. "
        "My records are older than your message, so a backup was probably restored."
    )


def handled(turn_id: str, request: str) -> Message:
    """Asks whether to run it (again)."""
    return _continue_or_drop(turn_id, f"{handled_text(request)}\nCheck what is already done. Run it?")


def crowded(turn_id: str, most: int) -> Message:
    """A message above its author's limit, with buttons to run or drop it."""
    return said(
        f"{CROWDED_TEXT} {most} may wait (`agent.queuePerUser`). Press **Continue** when there is room.",
        Button("Continue", RETRY_ACTION, turn_id),
        Button("Drop", DROP_ACTION, turn_id),
    )


def _continue_or_drop(turn_id: str, text: str) -> Message:
    return said(
        text,
        Button("Continue", RETRY_ACTION, turn_id, "primary"),
        Button("Drop", DROP_ACTION, turn_id),
    )


def interrupted_text(request: str, last_seen: str | None) -> str:
    """A run that was interrupted when the worker ended."""
    doing = f" Last step: {code(last_seen)}." if last_seen else ""
    return f"⚠️ The machine stopped while I was working on: _{plain(one_line(request)) or '…'}_.{doing}"


def program_interrupted(command: str, session: str) -> str:
    """A command or session that ended with its worker."""
    return (
        f"❌ The machine stopped while {code(command) if command else 'this'} was running, which ended it. "
        f"Output so far: `!logs {session}`. Send it again to rerun it."
    )


def interrupted(turn_id: str, request: str, last_seen: str | None) -> Message:
    """Asks once whether to continue or drop it."""
    return _continue_or_drop(
        turn_id, f"{interrupted_text(request, last_seen)}\nNothing restarts automatically. Continue?"
    )


def stopped_text(request: str) -> str:
    """A run that a person stopped."""
    return f"🛑 Stopped: _{plain(one_line(request)) or '…'}_."


def failed_text(line: str) -> str:
    """A failure in one line, with what to do."""
    return f"❌ {plain(one_line(line, 500)) or 'The agent failed without an error message.'}"


def failed(turn_id: str, line: str, *, resumable: bool) -> Message:
    """A failure; a run that reached a limit can be continued."""
    text = failed_text(line)
    if not resumable:
        return said(text)
    return said(text, Button("Continue", RETRY_ACTION, turn_id, "primary"))


def decided(text: str, verdict: str) -> Message:
    """The question with its decision, without buttons."""
    return said(f"{text}\n{verdict}")


def parked_text(line: str, at: datetime) -> str:
    """What happened, and when the run resumes."""
    when = at.astimezone(UTC)
    return f"⏸️ {plain(one_line(line, 500))}\nResumes automatically at {when:%H:%M} UTC on {when:%d %B}."


def parked(turn_id: str, line: str, at: datetime, now: datetime, others: Sequence[str]) -> Message:
    """The same with buttons: try now, drop it, or continue with one of ``others``."""
    text = f"{parked_text(line, at)} That is in {span((at - now).total_seconds())}."
    on_another = (Button(f"Continue on {name}", RETRY_ACTION, f"{turn_id}{ANOTHER}{name}") for name in others)
    return said(
        text, Button("Try now", RETRY_ACTION, turn_id), Button("Drop", DROP_ACTION, turn_id), *on_another
    )


def stopped(view: TurnProgress, by: PersonRef = NO_PERSON) -> str:
    """What it had done, without the files, which a card shows; ``by``: who stopped it from elsewhere."""
    who = f" by {person(by)}" if by else ""
    done = _tools(view)
    text = one_line(view.writing or view.said, TEXT_CHARS)
    if not done and not text:
        return f"🛑 Stopped{who} before anything was done."
    told = f"🛑 Stopped{who}. {done}" if done else f"🛑 Stopped{who} before any tool ran."
    return f"{told}\n> {plain(text)}" if text else told


def _tools(view: TurnProgress) -> str:
    if not view.tools:
        return ""
    failed = f", {view.failed_tools} failed" if view.failed_tools else ""
    return f"{count(view.tools, 'tool call')}{failed}, the last one {code(view.last_tool)}."


def edited(state: TurnState, value: str) -> Message:
    """The offer to start a new run; ``state`` is that of the turn the message is in."""
    stands = _ANSWERED if state == "done" else _LIVE if state in ("running", "waiting") else _ENDED
    return said(
        f"{stands}\nAsk again to start a new run with the edited text.",
        Button("Ask again", ASK_AGAIN_ACTION, value),
    )


def own_worktree(branch: str) -> str:
    """Posted once, when the run has changed something in its worktree."""
    return (
        f"🌿 This conversation's changes are in its own worktree, on branch `{branch}`. `!diff` and "
        "`run: …` in this thread use it; `!merge` merges it, `!discard` deletes it."
    )


def also_changed(threads: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Other threads (Markdown), each with the files of this one that it has changed too."""
    lines = []
    for thread, paths in threads:
        more = f" and {len(paths) - MOST_FILES} more" if len(paths) > MOST_FILES else ""
        lines.append(
            f"Also changed in {thread}: {', '.join(code(path, 60) for path in paths[:MOST_FILES])}{more}."
        )
    return "\n".join(["🔀 " + lines[0], *lines[1:], "Whichever is merged second may conflict."])


def undo_preview(turn_id: str, verb: str, what: str, found: PutBack) -> Message:
    """What would be put back, and the button that does it; without one if nothing can be. ``verb``: Undo or Redo."""
    text = f"↩ {verb} {what}?\n{_outcome(found)}"
    if not found.undone:
        return said(text)
    text += "\nCommits, branches and staged changes stay as they are."
    return said(text, Button(f"{verb} {count(found.undone, 'file')}", UNDO_ACTION, turn_id, "danger"))


def _outcome(found: PutBack) -> str:
    lines = []
    if found.restored:
        lines.append(f"These files would be restored:\n{_paths(found.restored)}")
    if found.removed:
        lines.append(f"These new files would be removed:\n{_paths(found.removed)}")
    if found.left:
        lines.append(f"Changed since, so left alone:\n{_paths(found.left)}")
    if found.commits:
        lines.append(_commits(found.commits))
    return "\n".join(lines)


def _commits(number: int) -> str:
    return f"⚠️ It made {count(number, 'commit')}, which {'stays' if number == 1 else 'stay'}."


def _paths(paths: Sequence[str]) -> str:
    shown = [_visible(path) for path in paths[:PATHS_LISTED]]
    more = len(paths) - len(shown)
    block, _ = fenced("\n".join([*shown, *([f"… and {more} more"] if more else [])]), PATHS_CHARS)
    return block


def undone_text(found: PutBack, *, again: bool) -> str:
    """What was put back, as Markdown; ``again``: by a redo."""
    parts = [f"↩ {'Redid' if again else 'Undid'} changes to {count(found.undone, 'file')}:"]
    if found.restored:
        parts.append(_list(found.restored))
    if found.removed:
        parts += ["Removed:", _list(found.removed)]
    if found.left:
        parts += ["Changed since, so left alone:", _list(found.left)]
    if found.commits:
        parts.append(_commits(found.commits))
    return "\n\n".join(parts)


def _list(paths: Sequence[str]) -> str:
    shown = [f"- `{_visible(path)}`" for path in paths[:PATHS_LISTED]]
    more = len(paths) - len(shown)
    return "\n".join([*shown, *([f"- … and {more} more"] if more else [])])


def _visible(path: str) -> str:
    """A path that cannot pass for another one, or end the code it is shown as."""
    return "".join(each if each.isprintable() and each != "`" else f"\\u{ord(each):04x}" for each in path)


# What we say about an agent whose usage limit is hit: a question, who takes over, who answers meanwhile.


def moment(at: datetime) -> str:
    """A point in time for people."""
    when = at.astimezone(UTC)
    return f"{when:%H:%M} UTC on {when:%d %B}"


def asking_text(line: str, reset: datetime | None) -> str:
    """The limit, and when it resets, if that is known."""
    resets = f"The limit resets at {moment(reset)}. " if reset else ""
    return f"⏸️ {plain(one_line(line, 500))}\n{resets}Nothing resumes automatically."


def asking(
    turn_id: str, line: str, reset: datetime | None, others: Sequence[str], *, may_wait: bool
) -> Message:
    """Asks how to continue: ``may_wait`` for the reset, with one of ``others``, or not at all."""
    first = Button("Try now", RETRY_ACTION, turn_id)
    text = f"{asking_text(line, reset)} How should this continue?"
    if not may_wait:
        text = f"{asking_text(line, reset)} (`agent.resumeAtReset` is off.)"
    elif reset is not None:
        first = Button(f"Wait until {reset.astimezone(UTC):%H:%M} UTC", WAIT_ACTION, turn_id)
    on_another = (Button(f"Continue on {name}", RETRY_ACTION, f"{turn_id}{ANOTHER}{name}") for name in others)
    return said(text, first, *on_another, Button("Stop", DROP_ACTION, turn_id))


def cannot_take_over(successor: str, why: str) -> str:
    """Why the agent that should take over does not."""
    return f"{successor} cannot take over: {why.rstrip('.')}."


def taken_over(agent: str, line: str, reset: datetime | None, successor: str) -> Message:
    """Who continues and why, and who answers the next messages."""
    then = (
        f"New messages go to {code(agent)} again after {moment(reset)}."
        if reset
        else f"New messages try {code(agent)} first."
    )
    return said(
        f"⏭️ {plain(one_line(line, 500))}\n{code(agent)} is at its usage limit, so {code(successor)} continues here "
        f"(`agent.onLimit`) with the conversation so far. {then}"
    )


def answers_instead(agent: str, reset: datetime, successor: str) -> Message:
    """Said once in each thread, until the reset."""
    return said(
        f"⏭️ {code(agent)} is at its usage limit until {moment(reset)}, so {code(successor)} answers here until then "
        f"(`agent.onLimit`). To try {code(agent)} anyway, begin the message with `{agent}:`."
    )
