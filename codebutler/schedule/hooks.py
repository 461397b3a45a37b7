"""Calls of hooks: each is carried out once, also when it comes again after a restart.

A call is written down as begun before anything is said of it, and as taken once its wish is on disk. What a crash
interrupts is finished under the same operation id when the caller tries again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler.domain.message import said
from codebutler.domain.model import OPERATOR, Post
from codebutler.intake.intake import Outcome
from codebutler.intake.records import Kept, Notes
from codebutler.schedule.jobs import Hook
from codebutler.schedule.scheduler import Accept, Publish, scheduled
from codebutler.text.markup import plain

NOTE = "hooks"
REMEMBERED = 500
"""Calls of each hook whose repetition is noticed, the latest."""
KEY_CHARS = 24


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


class HookRunner:
    """Carries calls out. ``hooks`` are those there are now."""

    def __init__(self, notes: Notes, publish: Publish, accept: Accept, clock: Clock) -> None:
        self.hooks: Mapping[str, Hook] = {}
        self._publish = publish
        self._accept = accept
        self._clock = clock
        self._calls = Kept(notes, NOTE, Calls())

    def use(self, hooks: Mapping[str, Hook]) -> None:
        """These can be called from now on."""
        self.hooks = hooks

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        """Carry a call out; the same ``key`` again is a duplicate. Raises ChatError, StoreError."""
        name = hashlib.sha256(f"{hook.name}:{key}".encode()).hexdigest()[:KEY_CHARS]
        calls = await self._calls.open()
        if name in calls.known.get(hook.name, ()) and name not in calls.begun:
            return "duplicate"
        again = name in calls.begun
        await self._calls.change(lambda calls: began(calls, hook.name, name))
        header = Post(message=said(f"🪝 **{plain(hook.label)}**: starting…"))
        ts = await self._publish(hook.channel, f"hook:{hook.name}:{name}", header, again)
        now, text = self._clock.now(), hook.text(body)
        event = scheduled(hook.channel, ts, now, user=OPERATOR, text=text, job=hook.name)
        outcome = await self._accept(event)
        await self._calls.change(lambda calls: taken(calls, name))
        return outcome
