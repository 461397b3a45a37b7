"""Nothing starts before its line is on disk; nothing is lost while the disk takes none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from codebutler.domain.model import Command, NoRequest, Prompt, Request
from codebutler.intake.dispatcher import RETRY_S
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct
from codebutler.platform.tasks import beside
from tests.clock import ManualClock, settle
from tests.dispatching import dispatcher
from tests.events import deleted, posted

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entry(seq: int, request: Request, channel: str = "C1") -> Entry:
    if isinstance(request, NoRequest):
        return Entry(seq, channel, deleted(channel=channel, ref="0.1", user="U1"), request, NOW)
    event = posted(channel=channel, ref=f"{seq}.0", user="U1", text=f"text {seq}")
    return Entry(seq, channel, event, request, NOW)


def prompt(seq: int, channel: str = "C1") -> Entry:
    return entry(seq, Prompt(text=f"text {seq}"), channel)


class Disk:
    """The audit log and whatever comes after it, in the order of what happened."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.told: list[str] = []
        self.full = False

    def keep(self, acts: Sequence[AuditAct]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.happened += [f"kept {act.text} {act.decision}" for act in acts]

    def deliver(self, entry: Entry) -> None:
        self.happened.append(f"routed {entry.seq}")

    def told_of(self, entry: Entry, _error: OSError) -> None:
        self.told.append(entry.channel)


async def calm() -> None:
    for _ in range(4):
        await asyncio.to_thread(lambda: None)
        await settle()


async def test_the_line_is_kept_before_it_is_routed_and_order_holds() -> None:
    disk = Disk()
    audit = dispatcher(disk.deliver, keep=disk.keep, on_trouble=disk.told_of)
    async with beside(audit.run(), name="audit"):
        for each in (prompt(1), entry(2, NoRequest()), entry(3, Command(name="reset")), prompt(4)):
            audit.dispatch(each)
        assert disk.happened == []
        await calm()
    assert [line for line in disk.happened if line.startswith("routed")] == [
        f"routed {n}" for n in (1, 2, 3, 4)
    ]
    for seq in (1, 4):
        assert disk.happened.index(f"kept text {seq} allowed") < disk.happened.index(f"routed {seq}")


async def test_what_starts_nothing_passes_at_once() -> None:
    disk = Disk()
    audit = dispatcher(disk.deliver, keep=disk.keep, on_trouble=disk.told_of)
    audit.dispatch(entry(1, Command(name="ping")))
    audit.dispatch(entry(2, NoRequest()))
    assert disk.happened == ["routed 1", "routed 2"]


async def test_while_nothing_can_be_kept_nothing_starts_but_stop_works() -> None:
    disk, clock = Disk(), ManualClock()
    disk.full = True
    audit = dispatcher(disk.deliver, keep=disk.keep, on_trouble=disk.told_of, clock=clock)
    async with beside(audit.run(), name="audit"):
        audit.dispatch(prompt(1))
        await calm()
        audit.dispatch(prompt(2, "C2"))
        audit.dispatch(entry(3, Command(name="stop")))
        await clock.advance(3 * RETRY_S)
        await calm()
        assert disk.happened == ["routed 3"]
        assert "no space left on device" in audit.trouble
        assert disk.told == ["C1"]
        disk.full = False
        await clock.advance(RETRY_S)
        await calm()
        assert disk.happened[1:] == ["kept text 1 allowed", "kept text 2 allowed", "routed 1", "routed 2"]
        assert audit.trouble == ""
