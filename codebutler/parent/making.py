"""A requested repository on the disk: where it may be, where it is created, and how it is removed again (all of that
blocks), and its progress as a message in the chat."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Struct

from codebutler.chat.chats import Chats
from codebutler.config.git_repo import address_in, repo_root
from codebutler.config.load import parse_layer
from codebutler.config.paths import CONFIG_NAME, Home, RepoPaths
from codebutler.config.registering import check_repo
from codebutler.config.registry import Registry, RepoEntry
from codebutler.domain.errors import ChatError, CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.model import Post, Update
from codebutler.domain.refs import NOWHERE
from codebutler.schedule.commands import Asker
from codebutler.schedule.scheduler import Publish
from codebutler.text.markup import channel, code

NO_ROOT = "no directory is set for new repositories: run `codebutler config set newRepos.root DIRECTORY` on the machine"
BAD_SOURCE = (
    "not an address to clone from: use https://…, ssh://… or git@HOST:PATH, or the path of a repository that is "
    "below `newRepos.root` already"
)
WITH_LOGIN = (
    "the address contains a name or a password: leave it out, the machine's owner's credentials are used. If you "
    "sent a token, revoke it"
)
OUTSIDE = "there is no repository with that path below `newRepos.root` (addresses to clone from begin with https:// or ssh://)"


class Making(Struct, frozen=True, kw_only=True):
    """A request in progress. ``target``: where the repository will be; ``draft``: where it is created, "" if it
    already exists; ``url``: what is cloned, "" = nothing. ``moved``: it may be at its target by now."""

    name: str
    target: str
    began_s: float
    draft: str = ""
    url: str = ""
    moved: bool = False


def root_of(configured: str) -> Path:
    """Where new repositories are created, links resolved. Raises CodeButlerError if that is not configured."""
    if not configured:
        raise CodeButlerError(NO_ROOT)
    return Path(configured).expanduser().resolve()


def planned(root: Path, name: str, source: str, key: str, now_s: float) -> Making:
    """Where the repository of request ``key`` will be. Raises CodeButlerError for an invalid source, and for a target
    that already exists."""
    if source and address_in(source) is None:
        return Making(name=name, target=str(_present(root, source)), began_s=now_s)
    address = address_in(source) if source else None
    if address is not None and address.kind == "https" and address.login:
        raise CodeButlerError(WITH_LOGIN)
    target = root / name
    if os.path.lexists(target):
        raise CodeButlerError(
            f"{target} already exists: choose another name, or send `!new {name} {name}` to use it"
        )
    draft = root / f".new-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return Making(name=name, target=str(target), draft=str(draft), url=source, began_s=now_s)


def _present(root: Path, source: str) -> Path:
    """The repository at a path below ``root``, links resolved. A path that leads outside does not reveal whether it
    exists."""
    if source.startswith(("-", "~")) or ":" in source:
        raise CodeButlerError(BAD_SOURCE)
    try:
        place = (root / source).resolve()
        is_there = place != root and place.is_relative_to(root) and place.is_dir()
    except (OSError, ValueError, RuntimeError):  # an impossible path, a loop of links
        is_there = False
    if not is_there or repo_root(place) != place:
        raise CodeButlerError(OUTSIDE)
    return place


def clear_draft(making: Making) -> None:
    """Start over after an interrupted attempt. Raises CodeButlerError if somebody else has created the target."""
    if os.path.lexists(making.draft):
        shutil.rmtree(making.draft)
    if os.path.lexists(making.target):
        raise CodeButlerError(f"{making.target} was just created by somebody else: choose another name")


def is_moved(making: Making) -> bool:
    """Whether the new repository is at its target: it was moved there in one step, after ``moved`` was recorded."""
    return making.moved and os.path.lexists(making.target) and not os.path.lexists(making.draft)


def take_back(making: Making) -> None:
    """Remove everything that was created. What existed before stays."""
    if not making.draft:
        return
    made = [making.target] if is_moved(making) else []
    for place in (making.draft, *made):
        shutil.rmtree(place, ignore_errors=True)


def looked_at(registry: Registry, home: Home, making: Making) -> dict[str, Any]:
    """Its own config. Raises CodeButlerError if it could not be served."""
    place = Path(making.target)
    check_repo(registry, home, RepoEntry(name=making.name, path=making.target))
    _refuse_nested(registry.load(), place)
    paths = RepoPaths(place)
    if not os.path.lexists(paths.root):
        return {}
    with paths.open() as directory:
        data = directory.read(CONFIG_NAME)
    return {} if data is None else parse_layer(data, str(paths.config))


def _refuse_nested(entries: Sequence[RepoEntry], place: Path) -> None:
    """Raises CodeButlerError where one agent could write what counts as the owner's own in the other's repository. Only
    somebody at the machine may want that. Pure."""
    for entry in entries:
        if place.is_relative_to(entry.path) or Path(entry.path).is_relative_to(place):
            raise CodeButlerError(
                f"{place} and the repository {entry.name} would be nested, and agents may write there: "
                "choose another directory, or run `codebutler add-repo` on the machine"
            )


def refuse_taken(entries: Sequence[RepoEntry], name: str, target: str = "") -> None:
    """Raises CodeButlerError for a name or directory that is already registered, with its channel. Pure."""
    for entry in entries:
        where = f" in {channel(entry.channel_id)}" if entry.channel_id else ""
        if entry.name.lower() == name.lower():
            raise CodeButlerError(f"a repository with that name already exists{where}: choose another name")
        if entry.path == target:
            raise CodeButlerError(f"that repository is already registered as {entry.name}{where}")


class ProgressMessage:
    """Reports the progress of a long clone, in one message that is edited. Best effort."""

    def __init__(self, publish: Publish, chats: Chats, asker: Asker, what: str) -> None:
        self._publish = publish
        self._chats = chats
        self._asker = asker
        self._what = what
        self._ref = NOWHERE

    async def over(self) -> None:
        """The clone is complete."""
        if self._ref:
            await self.told("done")

    async def told(self, progress: str) -> None:
        """Report this progress."""
        asker, message = self._asker, said(f"⏳ Cloning {code(self._what)} … {progress}")
        with suppress(ChatError):
            if self._ref:
                update = Update(target=self._ref, message=message)
                await self._chats.submit(asker.channel, uuid4().hex, update)
            else:
                post = Post(message=message, thread=asker.thread)
                self._ref = await self._publish(asker.channel, f"{asker.key} progress", post, True)  # noqa: FBT003 - it may stand there
