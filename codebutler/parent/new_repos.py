"""Repositories created from the chat: ``!new NAME [URL | PATH]``.

Each step is recorded first, under the request's key, so that an interrupted request resumes: a clone starts over, a
channel that was created is found again, a registered repository is only loaded. A failure leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from codebutler.chat.chats import Chats
from codebutler.chat.platform import Given, PlaceWish, Platform, RepoPlace, Unattended, platform
from codebutler.config.chats import chat_of
from codebutler.config.git_repo import address_in
from codebutler.config.paths import Home, RepoPaths
from codebutler.config.permission import Where, admitted, may
from codebutler.config.registering import prepare_directory, register
from codebutler.config.registry import Registry, RepoEntry, add
from codebutler.config.resolve import resolve_global
from codebutler.config.schema import Config
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
    CodeButlerError,
    StoreError,
)
from codebutler.domain.model import OPERATOR
from codebutler.domain.refs import NO_CHANNEL, ConversationRef, PersonRef
from codebutler.intake.records import Notes
from codebutler.parent.checkout import CheckoutLimits, FreshCheckout
from codebutler.parent.making import (
    Making,
    ProgressMessage,
    clear_draft,
    is_moved,
    looked_at,
    planned,
    refuse_taken,
    root_of,
    take_back,
)
from codebutler.parent.parts import Reloads
from codebutler.platform.kill_points import reached
from codebutler.schedule.commands import Asker
from codebutler.schedule.scheduler import Publish
from codebutler.text.markup import channel, code, plain

ATTEMPTS = 3
RETRY_S = 2.0
# The chat's clock may be behind ours.
CLOCKS_DIFFER_S = 300.0


class NotServedError(CodeButlerError):
    """The repository and its channel exist; only somebody at the machine can continue."""


class Means(Struct, frozen=True, kw_only=True):
    """What is needed to create repositories. ``env``: the supervisor's environment."""

    home: Home
    env: Mapping[str, str]
    notes: Notes
    publish: Publish
    chats: Chats
    reloads: Reloads
    clock: Clock


class NewRepos:
    """Creates repositories that people request in the chat; ``make`` does everything."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._registry = Registry(means.home)
        self._one_by_one: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def make(self, name: str, source: str, asker: Asker) -> str:
        """Create it; returns the message for the user. The same request again resumes. Raises StoreError."""
        async with self._one_by_one[name.lower()]:
            try:
                return await self._make(name, source, asker)
            except StoreError:
                raise
            except NotServedError as error:
                return f"⚠️ {code(name)} was created, but cannot be served yet: {error}."
            except CodeButlerError as error:
                return f"❌ {code(name)} was not created: {error}."

    async def _make(self, name: str, source: str, asker: Asker) -> str:
        kept = await self._means.notes.note(_note(asker))
        making = json.decode(kept, type=Making) if kept else None
        since_s = making.began_s - CLOCKS_DIFFER_S if making else 0.0
        warnings: list[str] = []
        try:
            config = resolve_global(self._means.home, self._means.env).config
            chat = platform(chat_of(asker.channel))
            given = chat.new_place(name, _guests(config, asker))
            _refuse_stranger(config, asker)
            making = making or await self._begun(name, source, asker, config)
            making = await self._made(making, asker, config)
            reached("new-repo.made")
            entry = self._registered(making)
            if entry is None:
                layer = await asyncio.to_thread(looked_at, self._registry, self._means.home, making)
                place = await self._placed(chat, self._wish(config, given, making, warnings), since_s)
        except StoreError:
            raise
        except CodeButlerError:
            await self._take_back(making, asker)
            raise
        except OSError as error:
            await self._take_back(making, asker)
            raise CodeButlerError(f"the machine reports: {error.strerror or error}") from error
        reached("new-repo.placed")
        if entry is None:
            entry = await asyncio.to_thread(self._enter, making, place, layer, warnings)
        reached("new-repo.registered")
        await self._reloads(entry)
        return _answer(making, entry, warnings)

    async def _begun(self, name: str, source: str, asker: Asker, config: Config) -> Making:
        """Nothing has been done yet. Raises CodeButlerError."""
        root = root_of(config.new_repos.root)
        await asyncio.to_thread(self._checkout(config).refuse_unfit)
        began_s = self._means.clock.now().timestamp()
        entries = self._registry.load()
        refuse_taken(entries, name)
        making = await asyncio.to_thread(planned, root, name, source, asker.key, began_s)
        refuse_taken(entries, name, making.target)
        add(entries, RepoEntry(name=name, path=making.target))
        await self._keep(making, asker)
        return making

    async def _made(self, making: Making, asker: Asker, config: Config) -> Making:
        """Put the repository at its target. Raises CodeButlerError."""
        if not making.draft or is_moved(making):
            return making
        await asyncio.to_thread(clear_draft, making)
        checkout, draft = self._checkout(config), Path(making.draft)
        if (address := address_in(making.url)) is not None:
            progress = ProgressMessage(self._means.publish, self._means.chats, asker, address.shown)
            await checkout.clone(making.url, address, draft, progress.told)
            await progress.over()
        else:
            await checkout.empty(draft)
        await checkout.name_author(draft, config.new_repos.author)
        reached("new-repo.draft")
        making = replace(making, moved=True)
        await self._keep(making, asker)
        await asyncio.to_thread(draft.rename, making.target)
        return making

    def _checkout(self, config: Config) -> FreshCheckout:
        section = config.new_repos
        limits = CheckoutLimits(seconds=section.timeout_minutes * 60, max_bytes=section.max_mb * 10**6)
        return FreshCheckout(root_of(section.root), self._means.env, limits, self._means.clock)

    def _wish(self, config: Config, given: Given, making: Making, warnings: list[str]) -> PlaceWish:
        entry = RepoEntry(name=making.name, path=making.target)

        def check(channel_id: ConversationRef) -> None:
            """Refuse one that belongs to another repository."""
            add(self._registry.load(), replace(entry, channel_id=channel_id))

        nobody = Unattended(lambda _: None, warnings.append)
        return PlaceWish(
            config=config, given=given, repo=making.name, present=NO_CHANNEL, check=check, prompter=nobody
        )

    async def _placed(self, chat: Platform, wish: PlaceWish, since_s: float) -> RepoPlace:
        """Its place in the chat; an attempt with unknown outcome may have created it. Raises CodeButlerError."""
        began_s = self._means.clock.now().timestamp() - CLOCKS_DIFFER_S
        for attempt in range(1, ATTEMPTS + 1):
            wait_s = RETRY_S
            try:
                return await chat.place(dataclasses.replace(wish, made_since=since_s))
            except ChatRateLimitedError as error:
                wait_s = error.retry_after_s
                if attempt == ATTEMPTS:
                    raise
            except (ChatUnreachableError, ChatOutcomeUnknownError):
                since_s = since_s or began_s
                if attempt == ATTEMPTS:
                    raise
            await self._means.clock.sleep(wait_s)
        raise AssertionError

    def _registered(self, making: Making) -> RepoEntry | None:
        """What an interrupted attempt registered."""
        found = (each for each in self._registry.load() if each.path == making.target)
        return next((each for each in found if each.name == making.name), None)

    def _enter(
        self, making: Making, place: RepoPlace, layer: dict[str, Any], warnings: list[str]
    ) -> RepoEntry:
        """As `add-repo` does. Raises CodeButlerError: its place exists already, so nothing is undone."""
        entry = RepoEntry(name=making.name, path=making.target, channel_id=place.id)
        try:
            with prepare_directory(RepoPaths(Path(making.target))):
                _, foreign = register(self._registry, entry, layer, place.name)
        except (CodeButlerError, OSError) as error:
            raise NotServedError(
                f"{error}. Its channel {channel(place.id)} and {making.target} are there: when that is mended, run "
                f"`codebutler add-repo {making.target} --name {making.name}` on the machine and choose that channel"
            ) from error
        if foreign:
            warnings.append(
                f"its .codebutler/config.json sets {', '.join(foreign)}, which is ignored: read it, then run "
                f"`codebutler trust {making.name}` on the machine"
            )
        return entry

    async def _reloads(self, entry: RepoEntry) -> None:
        try:
            await self._means.reloads.ask()
        except CodeButlerError as error:
            raise NotServedError(f"{error}. It is registered as {entry.name}") from error

    async def _keep(self, making: Making, asker: Asker) -> None:
        await self._means.notes.keep_note(_note(asker), json.encode(making).decode())

    async def _take_back(self, making: Making | None, asker: Asker) -> None:
        if making is not None and self._registered(making) is None:
            await asyncio.to_thread(take_back, making)
            await self._means.notes.keep_note(_note(asker), "")


def _note(asker: Asker) -> str:
    return f"new-repo {asker.key}"


def _refuse_stranger(config: Config, asker: Asker) -> None:
    """Raises CodeButlerError for somebody who could not write in the new place, or may no longer create one."""
    decision = may(admitted(asker.user), "new", Where(config, asker.channel))
    if not decision.allowed:
        raise CodeButlerError(decision.message.removesuffix("."))


def _guests(config: Config, asker: Asker) -> tuple[PersonRef, ...]:
    """The person who asks; at the machine's terminal, its operator if known."""
    user = config.approvals.operator if asker.user == OPERATOR else asker.user
    return (user,) if user else ()


def _answer(making: Making, entry: RepoEntry, warnings: Sequence[str]) -> str:
    address = address_in(making.url)
    if address is not None:
        origin = f"Cloned from {code(address.shown)} to {code(making.target)}."
    else:
        origin = (
            f"{'A new, empty repository' if making.draft else 'The repository'} at {code(making.target)}."
        )
    ready = f"✅ {code(entry.name)} is ready in {channel(entry.channel_id)}: write a message there to start."
    return "\n".join((f"{ready} {origin}", *(f"⚠️ {plain(each)}" for each in warnings)))
