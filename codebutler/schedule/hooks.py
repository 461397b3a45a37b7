"""Calls of hooks: each is carried out once, even if it is repeated after a restart. And which pull
requests one is about.

A call is recorded as begun before anything is posted, and as taken once its prompt is on disk. A call interrupted by a
crash is completed under the same operation id when the caller retries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
"""How many calls of each hook are remembered, to recognize repetitions."""
KEY_CHARS = 24
Look = Callable[[str, tuple[int, ...]], None]


MOST_PULLS = 20
LARGEST_NUMBER = 2**62
CHECKS = ("check_run", "check_suite", "workflow_run", "workflow_job")
JOBS = ("pipeline", "build")
"""The keys of GitHub's events about checks, and the kinds of GitLab's. They may or may not name their pull requests."""


class Calls(Struct, frozen=True, kw_only=True):
    """The calls so far: for each hook the keys of its calls, in order; those in ``begun`` are not taken yet."""

    known: dict[str, tuple[str, ...]] = {}
    begun: frozenset[str] = frozenset()


def began(calls: Calls, hook: str, key: str) -> Calls:
    """Records that a call has begun; a known call stays as it is."""
    keys = calls.known.get(hook, ())
    if key in keys:
        return calls
    kept = (*keys, key)[-REMEMBERED:]
    forgotten = set(keys) - set(kept)
    return Calls(known={**calls.known, hook: kept}, begun=(calls.begun - forgotten) | {key})


def taken(calls: Calls, key: str) -> Calls:
    """Records that a call was carried out."""
    return replace(calls, begun=calls.begun - {key})


class HookRunner:
    """Carries out calls. ``hooks`` are the current ones; ``look`` tells a repository's worker of pull requests."""

    def __init__(self, notes: Notes, publish: Publish, accept: Accept, look: Look, clock: Clock) -> None:
        self.hooks: Mapping[str, Hook] = {}
        self._publish = publish
        self._accept = accept
        self._look = look
        self._clock = clock
        self._calls = Kept(notes, NOTE, Calls())

    def use(self, hooks: Mapping[str, Hook]) -> None:
        """Set the hooks that can be called from now on."""
        self.hooks = hooks

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        """Carry out a call; the same ``key`` again is a duplicate. Raises ChatError, StoreError."""
        if hook.pulls:
            # Doing it twice is harmless.
            if (numbers := pulls_in(body)) is not None:
                self._look(hook.repo, numbers)
            return "accepted"
        name = hashlib.sha256(f"{hook.name}:{key}".encode()).hexdigest()[:KEY_CHARS]
        calls = await self._calls.open()
        if name in calls.known.get(hook.name, ()) and name not in calls.begun:
            return "duplicate"
        again = name in calls.begun
        await self._calls.change(lambda calls: began(calls, hook.name, name))
        header = Post(message=said(f"🪝 **{plain(hook.label)}**: starting…"))
        ref = await self._publish(hook.channel, f"hook:{hook.name}:{name}", header, again)
        now, text = self._clock.now(), hook.text(body)
        event = scheduled(hook.channel, ref, now, user=OPERATOR, text=text, job=hook.name)
        outcome = await self._accept(event)
        await self._calls.change(lambda calls: taken(calls, name))
        return outcome


def pulls_in(body: object) -> tuple[int, ...] | None:
    """The numbers of the pull requests that a hook's body is about; () for checks that name none, None if it is about
    something else."""
    if not isinstance(body, dict):
        return None
    found = [
        _at(body, "pull_request", "number"),
        _at(body, "issue", "number"),
        _at(body, "merge_request", "iid"),
    ]
    if body.get("object_kind") == "merge_request":
        found.append(_at(body, "object_attributes", "iid"))
    for name in CHECKS:
        listed = _at(body, name, "pull_requests")
        found += [_at(each, "number") for each in (listed if isinstance(listed, list) else [])[:MOST_PULLS]]
    numbers = _numbers(found)
    is_status = isinstance(body.get("sha"), str) and "state" in body
    is_check = is_status or body.get("object_kind") in JOBS or any(name in body for name in CHECKS)
    return numbers if numbers or is_check else None


def _at(body: Any, *path: str) -> Any:
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _numbers(found: Iterable[Any]) -> tuple[int, ...]:
    kept = (each for each in found if isinstance(each, int) and not isinstance(each, bool))
    return tuple(dict.fromkeys(each for each in kept if 0 < each < LARGEST_NUMBER))[:MOST_PULLS]
