"""What was missed while nobody listened, decided from what history shows and what the journal remembers. Pure.

Slack keeps messages but no events: that a message was edited shows on it, that one was deleted shows by its
absence from pages that would hold it. Edits and deletions matter for messages that may still wait, so they
are looked for among the latest ones only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from codebutler.chat.slack.answers import seconds_of, ts_at, written
from codebutler.domain.model import Event, Handled, MessageDeleted, MessageEdited, MessagePosted
from codebutler.intake.records import LOOK_BACK_S, Gap, SeenMessage

# Events of one moment may come in any order.
OVERLAP_S = 60.0
# Answers in a thread do not show in the channel's history: for so long a quiet thread is looked after.
LIVE_THREAD_S = 7 * 86400.0
# What is older is nobody's question any more.
OLDEST_S = 7 * 86400.0
# Our reactions on a message whose turn has ended.
FINAL_MARKS = frozenset({"white_check_mark", "x", "octagonal_sign"})


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as history shows it. ``event`` is None for what is not a person's (a bot's, a notice);
    ``edited_ts`` and ``latest_reply`` are "" where there are none; ``gone``: only its place is left. ``marks`` are our
    own reactions; ``replied``: we have said something in its thread."""

    ts: str
    event: MessagePosted | None = None
    edited_ts: str = ""
    edited_by: str = ""
    latest_reply: str = ""
    gone: bool = False
    marks: frozenset[str] = frozenset()
    replied: bool = False

    @property
    def sent_at(self) -> float:
        """When it was written."""
        return seconds_of(self.ts)


@dataclass(frozen=True, slots=True)
class Window:
    """What is to be fetched: messages after ``oldest_s``. Replies and new messages count after ``look_s``;
    those up to ``near_s`` came, as far as is known."""

    oldest_s: float
    look_s: float
    near_s: float = 0.0


def old_root(now: datetime) -> str:
    """The threads that began up to it do not show in what is fetched."""
    return ts_at(now.timestamp() - OLDEST_S)


def window(gap: Gap, now: datetime) -> Window:
    """Wide enough to hold the first messages of the threads that are alive."""
    limit_s = now.timestamp() - OLDEST_S
    look_s = max(gap.since_s - LOOK_BACK_S, gap.floor_s, limit_s)
    # Just before the first of the threads: history tells what is newer than ``oldest``.
    oldest_s = min(look_s, seconds_of(gap.first_root) - 0.000001) if gap.first_root else look_s
    return Window(max(oldest_s, limit_s), look_s, gap.since_s - OVERLAP_S)


def threads(gap: Gap, frame: Window, shown: Iterable[ShownMessage]) -> list[str]:
    """The first messages' ts of threads that may hold new replies, the latest thread first.

    History tells of a first message when its thread was last written in, and nothing of a thread that began
    before the fetched window: there we have to look.
    """
    wanted: dict[str, float] = {}
    for each in shown:
        if _is_after(each.latest_reply, gap.since_s):
            wanted[each.ts] = seconds_of(each.latest_reply)
        elif each.event is not None and each.event.thread_ts and each.sent_at > frame.look_s:
            # A reply that was sent to the channel too.
            wanted[each.event.thread_ts] = max(each.sent_at, wanted.get(each.event.thread_ts, 0.0))
    for seen in gap.beyond:
        if seen.sent_at > gap.since_s - LIVE_THREAD_S and seconds_of(seen.root_ts) <= frame.oldest_s:
            wanted[seen.root_ts] = max(seen.sent_at, wanted.get(seen.root_ts, 0.0))
    return sorted(wanted, key=lambda root: wanted[root], reverse=True)


def earlier(gap: Gap, frame: Window, latest: Mapping[str, str]) -> list[str]:
    """The same for threads that were written in some time before the gap: an event that Slack had given up by
    then, while others came, left a hole there. ``latest``: by first message, when its thread was last written in."""
    found = [
        root
        for root, ts in latest.items()
        if seconds_of(ts) > frame.look_s and not _is_after(ts, gap.since_s)
    ]
    return sorted(found, key=lambda root: latest[root], reverse=True)


def unsettled(gap: Gap, frame: Window) -> list[str]:
    """The same for threads of which a reply may still wait, and so may have been edited or deleted: history
    does not tell that of replies."""
    wanted: dict[str, float] = {}
    for seen in gap.known:
        if seen.root_ts != seen.ts and _may_wait(seen, frame):
            wanted[seen.root_ts] = max(seen.sent_at, wanted.get(seen.root_ts, 0.0))
    return sorted(wanted, key=lambda root: wanted[root], reverse=True)


def missed(
    gap: Gap, frame: Window, shown: Iterable[ShownMessage], complete: Collection[str | None]
) -> list[Event]:
    """The events that ``shown`` (the channel's messages and the replies) proves, in order of their messages.

    ``complete`` names what was fetched to its end: a thread by its first message's ts, the channel by None.
    Only there does absence mean deletion.
    """
    known = {seen.ts: seen for seen in gap.known}
    present = {each.ts: each for each in shown if not each.gone}
    found: list[tuple[str, str, Event]] = []
    for ts, each in present.items():
        if each.event is not None and each.sent_at > frame.look_s:
            if ts not in known:
                found.append((ts, "", replace(each.event, handled=handled(each))))
            elif known[ts].taken and each.edited_ts:
                found.append((ts, each.edited_ts, _edit(each, each.event)))
    for seen in gap.known:
        place = None if seen.root_ts == seen.ts else seen.root_ts
        if seen.taken and _may_wait(seen, frame) and seen.ts not in present and place in complete:
            found.append((seen.ts, "", _deletion(gap.channel, seen)))
    return [event for _, _, event in sorted(found, key=lambda each: each[:2])]


def handled(shown: ShownMessage) -> Handled:
    """Whether a message that we do not know was handled all the same: by a life whose files were put back to an
    earlier state. A mark for good is the end of a turn; any other sign of ours says only that it was taken in."""
    if shown.marks & FINAL_MARKS:
        return "yes"
    return "maybe" if shown.marks or shown.replied else "no"


def _is_after(ts: str, since_s: float) -> bool:
    return bool(ts) and seconds_of(ts) > since_s - OVERLAP_S


def _may_wait(seen: SeenMessage, frame: Window) -> bool:
    return seen.taken and seen.sent_at > frame.look_s


def _edit(shown: ShownMessage, event: MessagePosted) -> MessageEdited:
    return MessageEdited(
        **written(event.channel, shown.edited_ts),
        ts=event.ts,
        user=shown.edited_by or event.user,
        text=event.text,
        edited_ts=shown.edited_ts,
        thread_ts=event.thread_ts,
    )


def _deletion(channel: str, seen: SeenMessage) -> MessageDeleted:
    return MessageDeleted(
        **written(channel, seen.ts),
        ts=seen.ts,
        user=seen.user,
        thread_ts=None if seen.root_ts == seen.ts else seen.root_ts,
    )
