"""How a running turn is shown, and its answer: in parts, or as a file if very long; and notices about files. Pure: no
clock, no store.

A run has one message that is edited while it runs, with a final line. Listeners at the machine get more, and sooner,
than a chat takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.domain.message import STOP_ACTION, Button, Message, said
from codebutler.domain.model import Operation, Post, Upload
from codebutler.domain.refs import NO_PERSON, MessageRef, PersonRef
from codebutler.protocol.messages import MAX_FETCH_BYTES, Live
from codebutler.text.disguised import CUT
from codebutler.text.envelopes import Envelope, before_any
from codebutler.text.markdown import beginning, closed, split_markdown, whole_tables
from codebutler.text.markup import clip, fence, plain
from codebutler.text.wording import amount, count, one_line, ordinal, span
from codebutler_worker.agents.backend import (
    AgentEvent,
    Plan,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    Writing,
)
from codebutler_worker.present.lines import code
from codebutler_worker.store.rows import AttachmentRow
from codebutler_worker.tools.tool import PlanStep

MOST_LINES = 6
MOST_CHARS = 500
Outcome = Literal["done", "failed", "stopped", "interrupted", "parked"]
SIGNS: dict[Outcome, str] = {
    "done": "✅",
    "failed": "❌",
    "stopped": "🛑",
    "interrupted": "⚠️",
    "parked": "⏸️",
}
BOXES = {"pending": "·", "in_progress": "▸", "done": "✓"}
_PLAN_LINES = 8
FAR = 9
"""Places beyond this one are shown as far back: exact ones would need an edit at each start."""
RESULT_CHARS = 700
RESULT_LINES = 15
MAX_CHARS = 200_000
TOOL_CHARS = 200

FILE_OVER_CHARS = 10_000
FILE_OVER_PARTS = 10
MAX_ANSWER_CHARS = 2_000_000
NO_TEXT = "(no text)"
IN_FILE = "_Full answer attached._"
MODEL_CHARS = 60
Redact = Callable[[str], str]
_NOT_OF_A_NAME = re.compile(r"[^\w.:/@+-]", re.ASCII)
ENVELOPE_SIGNS: Mapping[str, str] = MappingProxyType(
    {"progress": "🔄", "question": "🤔", "warning": "⚠️", "done": "✅", "error": "❌"}
)
INCOMPLETE = "⚠️ (incomplete)"
SHOWN_TRANSCRIPT_CHARS = 3_000
NOTHING_LEFT = "I could not use anything you sent: see above, then send it again."
_WHY: Mapping[str, str] = {
    "empty": "it is empty",
    "file_not_found": "it is no longer shared in this channel",
    "login_page": "the chat does not let me read it (check that the app may read files and is in this channel)",
    "missing_scope": "the app lacks the permission to read files (`codebutler doctor` names it)",
    "silence": "it contains no speech",
    "timeout": "it took too long",
    "too_large": f"it is larger than {MAX_FETCH_BYTES // 2**20} MB",
    "untrusted_host": "it is not stored in the chat",
}


class TurnProgress(Struct, frozen=True):
    """What is known of a running turn. ``last_tool`` outlives its result: recovery and people ask for it.
    ``model`` is the one that answers, if the agent says. ``said`` is its latest text, ``writing`` the end of
    what it is writing now; ``thinks``: it neither writes nor acts. ``waits``: what it needs from a person
    ("approval", "answer"), "" if nothing."""

    activity: str = ""
    is_tool: bool = False
    last_tool: str = ""
    tools: int = 0
    failed_tools: int = 0
    plan: tuple[PlanStep, ...] = ()
    note: str = ""
    said: str = ""
    writing: str = ""
    thinks: bool = False
    waits: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""


def reduce(view: TurnProgress, event: AgentEvent) -> TurnProgress:
    """The view after ``event``; an equal view means there is nothing new to show."""
    match event:
        case Started(model=model):
            return replace(view, model=model)
        case Writing(text=text):
            return replace(view, writing=latest(text), thinks=False, note="")
        case ToolUse(name=name, summary=summary):
            label = tool_label(name, summary)
            view = replace(view, writing="", thinks=False, note="", last_tool=label, tools=view.tools + 1)
            return replace(view, activity=label, is_tool=True)
        case ToolResult(ok=False):
            return replace(view, failed_tools=view.failed_tools + 1)
        case Text(text=text):
            view, said = replace(view, writing="", thinks=False), text.strip()
            return replace(view, activity=said, is_tool=False, note="", said=said) if said else view
        case Thinking():
            return replace(view, thinks=True, note="")
        case Plan(steps=steps):
            return replace(view, plan=steps)
        case Refusal(text=text):
            return replace(view, writing="", thinks=False, note=text)
        case Usage():
            return replace(view, usage=event)
    return view


def tool_label(name: str, summary: str) -> str:
    """A tool call in a few words."""
    return f"{name}: {summary}" if summary else name


def prose(text: str) -> str:
    """The part of the unfinished text that is surely prose; the content of an envelope is posted separately."""
    return before_any(text.removesuffix(CUT))


def latest(text: str) -> str:
    """The last lines of the prose with runs of space collapsed; "" if there is none."""
    lines = [" ".join(line.split()) for line in prose(text).split("\n")]
    kept: list[str] = []
    room = MOST_CHARS
    for line in reversed([line for line in lines if line]):
        if len(kept) == MOST_LINES or room <= 0:
            break
        kept.append(line if len(line) <= room else CUT + line[-room:])
        room -= len(line)
    return "\n".join(reversed(kept)) + (CUT if kept else "")


def running(view: TurnProgress, elapsed_s: float, turn_id: str, agent: str, name: str = "") -> Message:
    """What the agent is doing, for how long, and a button that stops it. ``name``: the agent's, if several work."""
    lines = [_headline(view, elapsed_s, agent, name), *_plan_lines(view.plan)]
    if view.writing:
        # Cut Markdown cannot be parsed; at least remove the marks that would show most.
        lines += [f"> {plain(line.replace('**', '*'))}" for line in view.writing.split("\n")]
    if view.note:
        lines.append(f"⏳ {plain(one_line(view.note))}")
    return said("\n".join(lines), Button("Stop", STOP_ACTION, turn_id, "danger"))


def collapsed(outcome: Outcome, view: TurnProgress, elapsed_s: float, name: str = "") -> Message:
    """The line that remains when the run is over. It does not repeat the answer's footer. ``name`` as above."""
    if outcome == "done":
        return said(_named(name) + " · ".join([f"{SIGNS[outcome]} Done", *_tool_calls(view)]))
    return said(f"{_named(name)}{SIGNS[outcome]} {_figures(view, elapsed_s)}")


def _named(name: str) -> str:
    return f"{code(name)} · " if name else ""


def in_line(place: int, turn_id: str) -> Message:
    """How many have to start before a waiting turn (1 = none), and a button that takes it out of the queue."""
    where = "Next" if place == 1 else ordinal(place)
    if place > FAR:
        where = f"Far back ({ordinal(FAR + 1)} or later)"
    return said(f"⏳ {where} in line.", Button("Withdraw", STOP_ACTION, turn_id))


def _headline(view: TurnProgress, elapsed_s: float, agent: str, name: str) -> str:
    if view.waits:
        doing = f"✋ {plain(agent)} is waiting for your {view.waits}"
    elif view.writing:
        doing = f"💬 {plain(agent)} is writing"
    elif view.thinks:
        doing = f"💭 {plain(agent)} is thinking"
    elif not view.activity:
        doing = f"🔧 {plain(agent)} is working"
    elif view.is_tool:
        doing = f"{_named(name)}🔧 {code(view.activity)}"
    else:
        doing = f"{_named(name)}💬 {plain(one_line(view.activity))}"
    return f"{doing} · {_figures(view, elapsed_s)}"


def _figures(view: TurnProgress, elapsed_s: float) -> str:
    """Time, tool calls, and the cost so far: money if the agent reports it, else tokens."""
    parts = [span(elapsed_s), *_tool_calls(view)]
    if view.usage.cost_usd is not None:
        parts.append(amount("usd", view.usage.cost_usd))
    elif tokens := view.usage.input_tokens + view.usage.output_tokens:
        parts.append(amount("tokens", tokens))
    return " · ".join(parts)


def _tool_calls(view: TurnProgress) -> list[str]:
    return [count(view.tools, "tool call")] if view.tools else []


def _plan_lines(plan: tuple[PlanStep, ...]) -> list[str]:
    """The steps; of a long plan those around the current one."""
    done = 0
    if len(plan) > _PLAN_LINES:
        # Done steps go first: people look for the current step and the next ones.
        while done < len(plan) - _PLAN_LINES + 1 and plan[done].state == "done":
            done += 1
    rest = plan[done:]
    shown = [f"{BOXES[step.state]} {plain(one_line(step.text, 100))}" for step in rest[:_PLAN_LINES]]
    hidden = len(rest) - len(shown)
    head = [f"{BOXES['done']} {done} done"] if done else []
    return [*head, *shown, *([f"… and {hidden} more"] if hidden else [])]


def tool_result(label: str, text: str, *, ok: bool, redact: Callable[[str], str]) -> str:
    """The call in one line, and the start of its result."""
    head = f"{'✓' if ok else '✗'} {code(label)}"
    # Before the cut: the second half of a key no longer looks like one.
    lines = redact(text).strip().splitlines()
    shown = "\n".join(lines[:RESULT_LINES])[:RESULT_CHARS]
    if not shown.strip():
        return head
    cut = "\n…" if len(lines) > RESULT_LINES or len("\n".join(lines)) > RESULT_CHARS else ""
    return f"{head}\n{fence(shown + cut)}"


def joined(entries: list[str], left_out: int) -> str:
    """Several calls as one message."""
    more = [f"… and {left_out} more, too many to show"] if left_out else []
    return "\n".join([*entries, *more])


def live(event: AgentEvent, thread: MessageRef) -> Live | None:
    """The event for the thread's listeners; None for one they do not need."""
    match event:
        case Text(text=text) if text.strip():
            return Live(thread=thread, kind="text", text=text[:MAX_CHARS])
        case Writing(text=text) if text.strip():
            return Live(thread=thread, kind="writing", text=prose(text)[:MAX_CHARS])
        case ToolUse(name=name, summary=summary):
            label = one_line(tool_label(name, summary), TOOL_CHARS)
            return Live(thread=thread, kind="tool", text=f"🔧 {label}")
        case ToolResult(ok=False, text=text):
            return Live(thread=thread, kind="tool", text=f"❌ {one_line(text, TOOL_CHARS)}")
        case Plan(steps=steps):
            lines = [f"{BOXES[step.state]} {one_line(step.text, TOOL_CHARS)}" for step in steps]
            return Live(thread=thread, kind="plan", text="\n".join(lines)) if lines else None
        case Refusal(text=text):
            return Live(thread=thread, kind="note", text=f"⏳ {one_line(text, TOOL_CHARS)}")
    return None


def footer(usage: Usage, elapsed_s: float, model: str = "") -> str:
    """``_claude-opus-5-5_ • _tokens: 1234 in / 5678 out • 34s • 3 turns • $0.12_``; an unknown cost is left
    out. Only the time if no model was asked. Turns are the model's: how often it answered in this run."""
    if usage == Usage():
        return f"_{span(elapsed_s)}_"
    # An underscore at an end would end the italics.
    name = _NOT_OF_A_NAME.sub("", model)[:MODEL_CHARS].strip("_")
    parts = [
        f"tokens: {usage.input_tokens} in / {usage.output_tokens} out",
        span(elapsed_s),
        count(usage.turns, "turn"),
    ]
    if usage.cost_usd is not None:
        parts.append(amount("usd", usage.cost_usd))
    return f"_{name}_ • _{' • '.join(parts)}_" if name else f"_{' • '.join(parts)}_"


def answer(
    markdown: str,
    foot: str,
    thread: MessageRef | None,
    limit: int,
    mention: PersonRef = NO_PERSON,
    *,
    redact: Redact,
) -> tuple[Operation, ...]:
    """The posts (each of at most ``limit`` characters, the last one with the footer), and a file for a very
    long text.

    The last post mentions ``mention``. The first one may replace the streamed answer, unless it has to
    mention somebody: an edit notifies nobody.
    """
    # Before it is cut: the second half of a key does not look like one any more.
    text = redact(markdown[:MAX_ANSWER_CHARS]).strip() or NO_TEXT
    if len(text) <= FILE_OVER_CHARS and ("```" in text or "~~~" in text):
        text = closed(text)
    parts = [text]
    if len(text) > limit:
        parts = split_markdown(whole_tables(text[: FILE_OVER_CHARS + 1], limit), limit)
    file: tuple[Upload, ...] = ()
    if len(text) > FILE_OVER_CHARS or len(parts) > FILE_OVER_PARTS:
        head = split_markdown(beginning(text), limit - len(IN_FILE) - len(foot) - 4)[0]
        parts = [f"{head}\n\n{IN_FILE}"]
        content = text.encode("utf-8", "replace")
        file = (Upload(filename="answer.md", title="Answer", content=content, thread=thread),)
    elif len(parts[-1]) + len(foot) + 2 > limit:
        parts[-1:] = split_markdown(parts[-1], limit - len(foot) - 2)
    parts[-1] = f"{parts[-1]}\n\n{foot}"
    said = [Post(message=Message(markdown=part, is_foreign=True), thread=thread) for part in parts]
    said[-1] = replace(said[-1], mention=mention)
    said[0] = replace(said[0], in_place=not said[0].mention)
    return *said, *file


def posts(envelope: Envelope, thread: MessageRef | None, limit: int, redact: Redact) -> tuple[Post, ...]:
    """The envelope's text behind its sign, in posts of at most ``limit`` characters; none for an empty one."""
    if not envelope.body:
        return ()
    said = envelope.body if envelope.complete else f"{INCOMPLETE} {envelope.body}"
    sign = ENVELOPE_SIGNS.get(envelope.type, "")
    # Models like to write the sign themselves.
    text = said if not sign or said.startswith(sign) else f"{sign} {said}"
    # Before it is cut: the second half of a key does not look like one any more.
    parts = split_markdown(redact(text), limit)
    return tuple(Post(message=Message(markdown=part, is_foreign=True), thread=thread) for part in parts)


def why_not(reason: str) -> str:
    """A download error code in words."""
    return _WHY.get(reason, f"it could not be fetched ({one_line(reason, 60) or 'unknown'})")


def left_out(file: AttachmentRow, why: str) -> str:
    """The line about a file that the run continues without."""
    sign, what = ("🎤", "the voice message") if file.is_voice else ("📎", code(file.name or file.file_id, 80))
    return f"{sign} Continuing without {what}: {plain(one_line(why, 300))}."


def not_transcribed(why: str) -> str:
    """The line about a recording that the agent gets as a file only."""
    return f"🎤 The recording could not be transcribed: {plain(one_line(why, 300))}. The agent gets it as a file."


def transcribed(transcript: str) -> str:
    """The transcript that the agent gets, for people to check."""
    return f"🎤 “{clip(plain(transcript), SHOWN_TRANSCRIPT_CHARS)}”"


def unsent(path: str, why: str) -> str:
    """The line about a file that an agent wanted to send."""
    return f"📎 {code(path, 120)} was not sent: {plain(one_line(why, 200))}."


def only_files(names: Sequence[str]) -> str:
    """The answer of an agent that sent files and said nothing."""
    return "📎 " + ", ".join(code(name, 80) for name in names)
