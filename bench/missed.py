"""After a line that was cut for a moment: how soon the missed message of each channel is taken in."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from bench.figures import Figure, limit
from bench.scene import BenchError, Pace
from codebutler.clock import SystemClock
from codebutler.config.schema import Config, SlackSection
from codebutler.delivery.sender import Sender
from codebutler.dispatch.held import HeldBack
from codebutler.intake.authorise import Decision
from codebutler.intake.entry import Entry
from codebutler.intake.intake import Intake, Repo
from codebutler.intake.journal import Journal
from codebutler.model import Event, MessagePosted
from codebutler.slack.api import HISTORY_PAGE_SIZE
from codebutler.slack.catchup import CatchUp, Shelf
from codebutler.slack.memory import ME, MemoryChat

CHANNELS, MESSAGES = 20, 2_000
USER = "U0OWNER"
SPAN_S = 5 * 86400
AT_MOST_S = 30.0
DEADLINE_S = 600.0


class _Taken:
    """The end of the way in; refusals are not expected."""

    def __init__(self) -> None:
        self.channels: set[str] = set()
        self.all = asyncio.Event()

    def take(self, entry: Entry) -> None:
        """A message was taken in."""
        self.channels.add(entry.channel)
        if len(self.channels) == CHANNELS:
            self.all.set()

    def refused(self, _event: Event, _kind: str, _decision: Decision, *, tell: bool) -> None:  # noqa: ARG002
        """A message was refused."""
        raise BenchError("a message was refused")

    def commanded(self, _event: Event, _kind: str) -> None:
        """Nobody is told."""

    def no_space(self, _event: Event) -> None:
        """The disk is full."""
        raise BenchError("the disk is full")


async def measure(place: Path, _pace: Pace) -> list[Figure]:
    """Against a workspace in memory; the calls are limited as Slack's."""
    clock, chat, taken = SystemClock(), MemoryChat(page_size=HISTORY_PAGE_SIZE), _Taken()
    config = Config(slack=SlackSection(allowed_users=(USER,)))
    repos = {f"C{number}": Repo(f"repo{number}", config) for number in range(CHANNELS)}
    held = HeldBack()
    place.mkdir(parents=True, exist_ok=True)
    async with Journal.open(place / "journal.db", clock) as journal, Sender(chat, clock, str) as sender:
        intake = Intake(
            repos=lambda: repos,
            journal=journal,
            dispatch=lambda entry: held.take(entry, taken.take),
            refusals=taken,
            clock=clock,
        )
        shelf = Shelf(intake=intake, journal=journal, held=held)
        catch_up = CatchUp(sender.background, shelf, clock, Random(1), lambda: repos)
        for channel in repos:
            await _talked(journal, chat, channel)
        catch_up.lost()
        for channel in repos:
            chat.say(channel, USER, "missed", ts=f"{time.time():.6f}")
        running = asyncio.create_task(catch_up.run(ME))
        began_s = time.perf_counter()
        catch_up.back()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await taken.all.wait()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        what = f"{CHANNELS} channels × {MESSAGES:,} messages: the missed one of each is taken in"
        return [limit(what, time.perf_counter() - began_s, AT_MOST_S, "s")]


async def _talked(journal: Journal, chat: MemoryChat, channel: str) -> None:
    """For some days, and we heard all of it."""
    first_s = time.time() - SPAN_S
    said = []
    for number in range(MESSAGES):
        ts = f"{first_s + number * (SPAN_S - 60) / MESSAGES:.6f}"
        chat.say(channel, USER, "talk", ts=ts)
        said.append(MessagePosted(channel=channel, ts=ts, user=USER, text="talk"))
    await asyncio.gather(*(journal.pass_over(event) for event in said))
