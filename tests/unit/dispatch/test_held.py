"""Messages wait for what was written before them; what is no message does not."""

from __future__ import annotations

from datetime import UTC, datetime

from codebutler.domain.model import Event, MessagePosted, NoRequest
from codebutler.intake.records import Entry
from tests import events
from tests.dispatching import dispatcher
from tests.events import clicked, deleted, edited


class Workers:
    def __init__(self) -> None:
        self.seqs: list[int] = []

    def deliver(self, entry: Entry) -> None:
        self.seqs.append(entry.seq)


def entry(seq: int, event: Event) -> Entry:
    return Entry(seq, event.channel, event, NoRequest(), datetime(2026, 1, 1, tzinfo=UTC))


def posted(ts: str, channel: str = "C1", origin: str = "chat") -> MessagePosted:
    return events.posted(channel=channel, ref=ts, user="U1", text="x", origin=origin)


def test_what_is_held_comes_in_the_order_it_was_written() -> None:
    workers = Workers()
    way = dispatcher(workers.deliver)
    way.hold("C1")
    way.dispatch(entry(1, posted("1767225603.000000")))
    way.dispatch(entry(2, posted("1767225601.000000")))
    edit = edited(channel="C1", ref="1767225601.000000", user="U1", text="y", edit="1767225602.000000")
    way.dispatch(entry(3, edit))
    way.dispatch(entry(4, deleted(channel="C1", ref="1767225603.000000", user="U1")))
    way.dispatch(entry(5, posted("1767225601.500000", "C2")))
    assert workers.seqs == [5]
    way.release("C1")
    assert workers.seqs == [5, 2, 3, 1, 4]
    way.dispatch(entry(6, posted("1767225604.000000")))
    assert workers.seqs[-1] == 6


def test_clicks_and_local_messages_never_wait() -> None:
    workers = Workers()
    way = dispatcher(workers.deliver)
    way.hold("C1")
    click = clicked(channel="C1", user="U1", message="1.1", action_id="a", value="v", press="1.2")
    way.dispatch(entry(1, click))
    way.dispatch(entry(2, posted("1.0", origin="local")))
    assert workers.seqs == [1, 2]


def test_holding_twice_keeps_what_waits_and_everything_can_be_released() -> None:
    workers = Workers()
    way = dispatcher(workers.deliver)
    for channel in ("C1", "C2", "C1"):
        way.hold(channel)
        way.dispatch(entry(len(channel), posted("1767225603.000000", channel)))
    way.release_all()
    way.release("C1")
    assert len(workers.seqs) == 3
