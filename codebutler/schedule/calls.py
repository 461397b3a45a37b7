"""Calls of hooks: each is carried out once, also when it comes again after a restart.

A call is written down as begun before anything is said of it, and as taken once its wish is on disk. What a crash
interrupts is finished under the same operation id when the caller tries again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.errors import StoreError
from codebutler.intake.intake import Outcome
from codebutler.model import OPERATOR, Event, MessagePosted, Post
from codebutler.schedule.hooks import Hook
from codebutler.text.escape import escape

NOTE = "hooks"
REMEMBERED = 500
"""Calls of each hook whose repetition is noticed, the latest."""
KEY_CHARS = 24

log = logging.getLogger("codebutler.schedule")


class Calls(Struct, frozen=True, kw_only=True):
    """What has been called. For each hook the keys of its calls, in order; those in ``begun`` are not yet taken."""

    known: dict[str, tuple[str, ...]] = {}
    begun: frozenset[str] = frozenset()


def began(calls: Calls, hook: str, key: str) -> Calls:
    """With a call that is begun; one that is known stays as it is."""
    keys = calls.known.get(hook, ())
    if key in keys:
        return calls
    kept = (*keys, key)[-REMEMBERED:]
    forgotten = set(keys) - set(kept)
    return Calls(known={**calls.known, hook: kept}, begun=(calls.begun - forgotten) | {key})


def taken(calls: Calls, key: str) -> Calls:
    """With a call that is carried out."""
    return replace(calls, begun=calls.begun - {key})


class Notes(Protocol):
    """What outlives the process: the journal."""

    async def note(self, name: str) -> str: ...

    async def keep_note(self, name: str, value: str) -> None: ...


class Mouth(Protocol):
    """Says things, once each."""

    async def post(self, channel: str, key: str, post: Post, *, unsure: bool) -> str: ...


class Door(Protocol):
    """Where wishes are handed in: the intake."""

    async def accept(self, event: Event, *, missed: bool = False) -> Outcome: ...


class HookDesk:
    """Carries calls out. ``hooks`` are those there are now."""

    def __init__(self, notes: Notes, mouth: Mouth, door: Door) -> None:
        self.hooks: Mapping[str, Hook] = {}
        self._notes = notes
        self._mouth = mouth
        self._door = door
        self._calls: Calls | None = None
        self._opening = asyncio.Lock()

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        """Carry a call out; the same ``key`` again is a duplicate. Raises ChatError, StoreError."""
        name = hashlib.sha256(f"{hook.name}:{key}".encode()).hexdigest()[:KEY_CHARS]
        calls = await self._opened()
        if name in calls.known.get(hook.name, ()) and name not in calls.begun:
            return "duplicate"
        again = name in calls.begun
        await self._change(lambda calls: began(calls, hook.name, name))
        header = Post(text=f"🪝 *{escape(hook.label)}*: starting…")
        ts = await self._mouth.post(hook.channel, f"hook:{hook.name}:{name}", header, unsure=again)
        outcome = await self._door.accept(
            MessagePosted(
                channel=hook.channel,
                ts=ts,
                user=OPERATOR,
                text=hook.text(body),
                origin="schedule",
                job=hook.name,
            )
        )
        await self._change(lambda calls: taken(calls, name))
        return outcome

    async def _opened(self) -> Calls:
        async with self._opening:
            if self._calls is None:
                self._calls = _decoded(await self._notes.note(NOTE))
            return self._calls

    async def _change(self, change: Callable[[Calls], Calls]) -> None:
        """On disk first. Raises StoreError: then all is as it was."""
        before = await self._opened()
        self._calls = after = change(before)
        if after == before:
            return
        try:
            await self._notes.keep_note(NOTE, msgspec.json.encode(after).decode())
        except StoreError:
            if self._calls is after:
                self._calls = before
            raise


def _decoded(note: str) -> Calls:
    try:
        return msgspec.json.decode(note, type=Calls) if note else Calls()
    except msgspec.DecodeError as error:
        log.warning("the calls of hooks cannot be read and are forgotten: %s", error)
        return Calls()
