"""Which host each repository is on: the note that all gateways share, and this gateway's registry.

Each gateway has its own registry file. So a move is noted for all gateways, and each gateway that begins to lead writes
it into its own registry.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.registry import Registry, RepoEntries, find
from codebutler.config.registry import replace as replaced
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.intake.records import Kept, Notes


class RepoHosts(Struct, frozen=True, kw_only=True):
    """Where a repository is: ``host``, "" = as registered; ``before``: the hosts it was on. ``to``: the host it is
    being moved to; ``left``: the host whose undelivered events are being taken over. ``force``: do not wait for running
    agents; ``key`` and ``user``: of the request."""

    host: str = ""
    before: tuple[str, ...] = ()
    to: str = ""
    left: str = ""
    force: bool = False
    key: str = ""
    user: PersonRef = NO_PERSON

    @property
    def is_moving(self) -> bool:
        """Whether a move has begun and is not finished."""
        return bool(self.to or self.left)

    def moved(self, old: str) -> RepoHosts:
        """The note once the repository has left ``old``."""
        before = (*(each for each in self.before if each not in (old, self.to)), old)
        return replace(self, host=self.to, before=before, to="", left=old)


def place_of(notes: Notes, repo: str) -> Kept[RepoHosts]:
    """The note of a repository."""
    return Kept(notes, f"host of {repo}", RepoHosts())


async def adopt(registry: Registry, notes: Notes) -> None:
    """Write the moves that other gateways made into this one's registry. Raises StoreError, CodeButlerError."""
    for entry in registry.load():
        if entry.host:
            known = await place_of(notes, entry.name).open()
            if entry.host in known.before:
                registry.update(partial(placed, name=entry.name, host=known.host))


def placed(entries: RepoEntries, name: str, host: str) -> RepoEntries:
    """The entries, with that repository on ``host``. Raises RegistryError."""
    entry = find(entries, name)
    return replaced(entries, replace(entry, path=f"{host}:{entry.path.partition(':')[2]}"))
