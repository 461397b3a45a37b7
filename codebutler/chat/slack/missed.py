"""Works out which events were missed while offline, from the channel's history and the journal. Pure.

Slack keeps messages but no events: an edited message says so, and a deleted one is missing from pages that should
have it. Edits and deletions matter only for messages that may still be waiting, so only the latest messages are
checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.slack.answers import DIRECT, ts_at
from codebutler.chat.slack.render import FINAL
from codebutler.domain.model import Event, Handled, MessageDeleted, MessageEdited, MessagePosted
from codebutler.domain.refs import NO_PERSON, ConversationRef, MessageRef, PersonRef
from codebutler.intake.records import LOOK_BACK_S, Gap, SeenMessage

# Events at nearly the same moment may arrive in any order.
OVERLAP_S = 60.0
# Thread replies do not show in the channel's history: quiet threads are checked for this long.
LIVE_THREAD_S = 7 * 86400.0
# Nobody is waiting for anything older.
OLDEST_S = 7 * 86400.0


class ShownMessage(Struct, frozen=True):
    """A message in the history. ``event`` is None if no person wrote it (a bot, a notice); ``edited_ts`` and
    ``latest_reply`` are "" if there are none; ``gone``: deleted, only its placeholder is left. ``marks`` are our own
    reactions; ``replied``: we have posted in its thread."""

    ts: MessageRef
    event: MessagePosted | None = None
    edited_ts: str = ""
    edited_by: PersonRef = NO_PERSON
    latest_reply: str = ""
    gone: bool = False
    marks: frozenset[str] = frozenset()
    replied: bool = False

    @property
    def sent_at(self) -> float:
        """When it was posted."""
        return float(self.ts)


class Window(Struct, frozen=True):
    """What to fetch: messages after ``oldest_s``. Replies and new messages count after ``look_s``; those up to
    ``near_s`` are assumed to have arrived."""

    oldest_s: float
    look_s: float
    near_s: float = 0.0


def old_root(now: datetime) -> str:
    """Threads that began up to this time do not show in the fetched history."""
    return ts_at(now.timestamp() - OLDEST_S)


def window(gap: Gap, now: datetime) -> Window:
    """Wide enough to include the first messages of active threads."""
    limit_s = now.timestamp() - OLDEST_S
    look_s = max(gap.since_s - LOOK_BACK_S, gap.floor_s, limit_s)
    # Just before the first thread: history returns what is newer than ``oldest``.
    oldest_s = min(look_s, float(gap.first_root) - 0.000001) if gap.first_root else look_s
    return Window(max(oldest_s, limit_s), look_s, gap.since_s - OVERLAP_S)


def threads(gap: Gap, frame: Window, shown: Iterable[ShownMessage]) -> list[MessageRef]:
    """The first messages' ts of threads that may hold new replies, latest thread first. For a first message, history
    gives the time of its thread's last reply, but it omits threads that began before the fetched window: those have
    to be checked."""
    wanted: dict[MessageRef, float] = {}
    for each in shown:
        if _is_after(each.latest_reply, gap.since_s):
            wanted[each.ts] = float(each.latest_reply)
        elif each.event is not None and each.event.thread and each.sent_at > frame.look_s:
            # A reply that was also sent to the channel.
            wanted[each.event.thread] = max(each.sent_at, wanted.get(each.event.thread, 0.0))
    for seen in gap.beyond:
        if seen.sent_at > gap.since_s - LIVE_THREAD_S and float(seen.root) <= frame.oldest_s:
            wanted[seen.root] = max(seen.sent_at, wanted.get(seen.root, 0.0))
    return sorted(wanted, key=lambda root: wanted[root], reverse=True)


def earlier(gap: Gap, frame: Window, latest: Mapping[MessageRef, str]) -> list[MessageRef]:
    """The same for threads with replies shortly before the gap: an event that Slack had given up by then, while
    others arrived, left a hole there. ``latest``: the time of each thread's last reply, by first message."""
    found = [
        root for root, ts in latest.items() if float(ts) > frame.look_s and not _is_after(ts, gap.since_s)
    ]
    return sorted(found, key=lambda root: latest[root], reverse=True)


def unsettled(gap: Gap, frame: Window) -> list[MessageRef]:
    """The same for threads with a reply that may still be waiting, and so may have been edited or deleted: history
    does not show that for replies."""
    wanted: dict[MessageRef, float] = {}
    for seen in gap.known:
        if seen.root != seen.ref and _may_wait(seen, frame):
            wanted[seen.root] = max(seen.sent_at, wanted.get(seen.root, 0.0))
    return sorted(wanted, key=lambda root: wanted[root], reverse=True)


def missed(
    gap: Gap, frame: Window, shown: Iterable[ShownMessage], complete: Collection[str | None]
) -> list[Event]:
    """The events that ``shown`` (the channel's messages and the replies) proves, in the order of their messages.
    ``complete`` names what was fetched in full: a thread by its first message's ts, the channel by None. Only there
    does absence mean deletion."""
    known = {seen.ref: seen for seen in gap.known}
    present = {each.ts: each for each in shown if not each.gone}
    found: list[tuple[str, str, Event]] = []
    for ts, each in present.items():
        if each.event is not None and each.sent_at > frame.look_s:
            if ts not in known:
                found.append((ts, "", replace(each.event, handled=handled(each))))
            elif known[ts].taken and each.edited_ts:
                found.append((ts, each.edited_ts, _edit(each, each.event)))
    for seen in gap.known:
        place = None if seen.root == seen.ref else seen.root
        if seen.taken and _may_wait(seen, frame) and seen.ref not in present and place in complete:
            found.append((seen.ref, "", _deletion(gap.channel, seen)))
    return [event for _, _, event in sorted(found, key=lambda each: each[:2])]


def handled(shown: ShownMessage) -> Handled:
    """Whether a message that we do not know was handled after all: by an earlier process whose files were restored
    from a backup. A final mark means the end of a turn; any other mark only that it was received."""
    if shown.marks & FINAL:
        return "yes"
    return "maybe" if shown.marks or shown.replied else "no"


def _is_after(ts: str, since_s: float) -> bool:
    return bool(ts) and float(ts) > since_s - OVERLAP_S


def _may_wait(seen: SeenMessage, frame: Window) -> bool:
    return seen.taken and seen.sent_at > frame.look_s


def _edit(shown: ShownMessage, event: MessagePosted) -> MessageEdited:
    return MessageEdited(
        channel=event.channel,
        sent_at=float(shown.edited_ts),
        order=shown.edited_ts,
        is_direct=event.is_direct,
        ref=event.ref,
        user=shown.edited_by or event.user,
        text=event.text,
        edit=shown.edited_ts,
        thread=event.thread,
    )


def _deletion(channel: ConversationRef, seen: SeenMessage) -> MessageDeleted:
    return MessageDeleted(
        channel=channel,
        sent_at=float(seen.ref),
        order=seen.ref,
        is_direct=channel.startswith(DIRECT),
        ref=seen.ref,
        user=seen.user,
        thread=None if seen.root == seen.ref else seen.root,
    )
