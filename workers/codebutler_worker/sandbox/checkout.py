"""What a working directory consists of, as far as walls go: its git directory and its private directory.

The agent has written here before. Whatever is not as git itself lays it out is refused.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from codebutler.config.git_repo import Owner
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.destinations import (
    O_PATH,
    UnsafePathError,
    make_directory,
    make_file,
    open_beneath,
    read_regular,
    sockets_in,
    status_beneath,
)
from codebutler_worker.sandbox.gitconfig import Pointed
from codebutler_worker.sandbox.person import home_of_agents

# Links in a git directory that somebody's git would write through: ``git commit`` the message into whatever
# COMMIT_EDITMSG leads to, say (and that may have been prepared in MERGE_MSG), or its first line into what the log of a
# branch does. Git itself lays out none. Blocking.

KEPT_ELSEWHERE = ("lfs", "annex")
"""Large files are sometimes kept elsewhere by their owner, and git follows no link there to write."""
OTHERS = ("modules", *KEPT_ELSEWHERE)
"""What lies in these is no part of this repository's own: submodules are repositories, with a configuration."""
SHALLOW = "objects"
"""Files in here are written under names of their content, and never over others: only whole directories lead away."""
MOST = 200_000


def refuse_links(git: Path) -> None:
    """Raises SandboxUnavailableError with what to do."""
    left = [git]
    seen = 0
    while left:
        place = left.pop()
        for entry in _entries(place):
            seen += 1
            if entry.is_symlink() and not (place == git and entry.name in KEPT_ELSEWHERE):
                raise SandboxUnavailableError(
                    f"{entry.path} is a symbolic link, and your git would write through it: remove it"
                )
            inside = place != git / SHALLOW and not (place == git and entry.name in OTHERS)
            if inside and entry.is_dir(follow_symlinks=False):
                left.append(Path(entry.path))
        if seen > MOST:
            raise SandboxUnavailableError(
                f"{git} has more than {MOST} files besides objects: check what they are (`git pack-refs --all` "
                "packs branches and tags into one file)"
            )


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(place), key=attrgetter("name"))
    except OSError:
        return []  # gone meanwhile, or not ours to read: then git cannot, either


PRIVATE = ".codebutler"
SHARED = ("files", "images")
POINTER_BYTES = 4096

Paths = tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A working directory whose named paths exist and are no symbolic links.

    ``pinned`` are bound onto themselves, so that they cannot be renamed away; ``fixed`` are read-only; ``closed`` are
    directories in which nothing can be made or taken away, but what is pinned there can be written. ``private`` is
    hidden but for ``shared``. ``shared_git``: git gives what it makes to a group (core.sharedRepository). ``index``:
    where git's index is or will be, None without git. ``pointed``: what of ``fixed`` is git's because its configuration
    says so. ``sockets``: of programs outside, to be covered; they may go at any time.

    Whatever is named here is named for every program in the directory, also while another one is started: else the
    first could put a link into its place between our look and the mount.
    """

    root: Path
    owner: Owner
    pinned: tuple[Path, ...] = ()
    fixed: tuple[Path, ...] = ()
    closed: tuple[Path, ...] = ()
    private: Path | None = None
    shared: tuple[Path, ...] = ()
    shared_git: bool = False
    index: Path | None = None
    pointed: tuple[Path, ...] = ()
    sockets: tuple[Path, ...] = ()

    @property
    def hides_tracked(self) -> bool:
        """Whether what is hidden may be something that git tracks: then it is a place to write in."""
        return self.private is not None and self.index is not None

    @property
    def ways(self) -> tuple[Path, ...]:
        """The directories of ``sockets``, to be bound onto themselves: so none is moved to where nobody looks."""
        named = {self.root, *self.pinned, *self.shared, self.private}
        read_only = (*self.fixed, *self.closed)
        return tuple(sorted(_between(self.sockets, (self.root, *self.pinned[:1]), read_only) - named))

    @property
    def lasting(self) -> frozenset[Path]:
        """What is mounted onto itself or covered, and so has to stay in its place. Not what lies in a closed directory:
        there nobody inside can put anything else, should it go."""
        private = () if self.private is None else (self.private,)
        every = (*self.pinned, *self.fixed, *self.closed, *private, *self.shared)
        return frozenset(path for path in every if path.parent not in self.closed)

    @property
    def fleeting(self) -> frozenset[Path]:
        """Those of ``lasting`` that may go, but not become something else: git removes a worktree with all it has, and
        the directory of worktrees with the last one."""
        return frozenset((*self.closed, *(path for path in self.fixed if path.parent.parent in self.closed)))


def inspect_checkout(workdir: Path, *, filling: bool = False) -> Checkout:
    """Look at ``workdir`` and create what git leaves out (``hooks``, ``config``), so that it can be fixed.
    ``filling``: see SandboxPolicy.

    Raises SandboxUnavailableError if it cannot be walled in.
    """
    if not workdir.is_absolute() or not workdir.is_dir() or workdir.resolve() != workdir:
        raise SandboxUnavailableError(f"{workdir} is not a directory, or its path has a symbolic link in it")
    owner = workdir.stat()
    try:
        pinned, fixed, closed = _git(workdir)
        private, shared = _private(workdir)
        index = _git_directory_of(workdir) / "index" if pinned else None
        own = () if filling else _pointed(workdir, (*fixed, *closed), *pinned[:1])
        sockets = sockets_in((workdir, *pinned[:1]), shared, hidden=workdir / PRIVATE)
    except UnsafePathError as error:
        raise SandboxUnavailableError(
            f"{error.filename} in {workdir}: {error.strerror}; remove it or make it a real directory"
        ) from error
    return Checkout(
        root=workdir,
        owner=Owner.of(owner),
        pinned=(
            *pinned,
            *sorted(_between(own, (workdir, *pinned[:1]), (*fixed, *closed, *own)) - {workdir, *pinned}),
        ),
        fixed=(*fixed, *own),
        closed=closed,
        private=private,
        shared=shared,
        shared_git=any(path.stat().st_mode & stat.S_ISGID for path in pinned[:1]),
        index=index,
        pointed=own,
        sockets=sockets,
    )


def _pointed(root: Path, fixed: Paths, git: Path | None = None) -> Paths:
    """What the configuration of git leads to and is not ``fixed`` yet; nothing without git."""
    if git is None:
        return ()
    found = Pointed(root, git, home_of_agents(root, Path.home()), root / PRIVATE)
    found.read_all()
    return tuple(sorted(path for path in found.fixed if not any(path.is_relative_to(one) for one in fixed)))


def _between(paths: Paths, areas: Paths, read_only: Paths) -> set[Path]:
    """The directories on the way to ``paths`` that can be renamed: those in a read-only one cannot, and bound onto
    themselves they could be written."""
    return {
        parent
        for path in paths
        for parent in path.parents
        if any(parent.is_relative_to(area) for area in areas)
        and not any(parent.is_relative_to(one) for one in read_only)
    }


def _private(root: Path) -> tuple[Path | None, tuple[Path, ...]]:
    if status_beneath(root, PRIVATE) is None:
        if status_beneath(root, ".git") is None:
            return None, ()
        # In a repository without one the agent could make it, with a configuration and a store of its own.
        make_directory(root, PRIVATE, 0o700)
    _require_directory(root, PRIVATE)
    shared = [name for name in SHARED if status_beneath(root, f"{PRIVATE}/{name}")]
    for name in shared:
        _require_directory(root, f"{PRIVATE}/{name}")
    return root / PRIVATE, tuple(root / PRIVATE / name for name in shared)


def _git(root: Path) -> tuple[Paths, Paths, Paths]:
    found = status_beneath(root, ".git")
    if found is None:
        return (), (), ()
    if stat.S_ISREG(found.st_mode):
        common = _common_directory(root)
        pinned, fixed, closed = _git_directory(common.parent, common.name)
        return pinned, (*fixed, root / ".git"), closed
    return _git_directory(root, ".git")


def _git_directory(parent: Path, name: str) -> tuple[Paths, Paths, Paths]:
    """What to pin, to fix and to close in a git directory: what makes git run programs, and what leads elsewhere."""
    _require_directory(parent, name)
    git = parent / name
    if status_beneath(git, "commondir"):
        # git would take its configuration, and with it programs to run, from wherever this file says.
        raise SandboxUnavailableError(f"{git}/commondir does not belong in a git directory: remove it")
    refuse_links(git)
    _create_missing(git, directories=("hooks", "worktrees"), files=("config", "config.worktree"))
    pinned, fixed = [git], [git / "hooks", git / "config", git / "config.worktree"]
    for entry in sorted((git / "worktrees").iterdir()):
        _require_directory(git, f"worktrees/{entry.name}")
        _create_missing(entry, directories=(), files=("config.worktree",))
        pinned.append(entry)
        fixed += [
            entry / file
            for file in ("commondir", "gitdir", "config.worktree")
            if status_beneath(git, f"worktrees/{entry.name}/{file}")
        ]
    return tuple(pinned), tuple(fixed), (git / "worktrees",)


def _create_missing(root: Path, *, directories: tuple[str, ...], files: tuple[str, ...]) -> None:
    """What git leaves out until it needs it, so that nobody else can put something there. Empty, it changes
    nothing: git reads a ``config.worktree`` only where the configuration says so."""
    for name in directories:
        if status_beneath(root, name) is None:
            make_directory(root, name, 0o755)
        _require_directory(root, name)
    for name in files:
        if status_beneath(root, name) is None:
            make_file(root, name)


def _common_directory(root: Path) -> Path:
    """The git directory a worktree belongs to, if that one knows the worktree (gitrepository-layout(5)).

    The ``.git`` file is the agent's to write when nothing fixed it, so both directions have to agree, and what
    it names has to lie where the agent cannot have made it.
    """
    entry = _git_directory_of(root)
    common = entry.parent.parent
    known = (
        entry.parent.name == "worktrees"
        and not entry.is_relative_to(root)
        and common.is_dir()
        and common.resolve() == common
        and status_beneath(common, f"worktrees/{entry.name}") is not None
        and _pointer(common, f"worktrees/{entry.name}/gitdir", entry) == root / ".git"
        and _pointer(common, f"worktrees/{entry.name}/commondir", entry) == common
    )
    if not known:
        raise SandboxUnavailableError(
            f"{root}/.git does not name a worktree of a repository; a submodule cannot be registered on its own"
        )
    return common


def _git_directory_of(root: Path) -> Path:
    """``.git``, or what it names where it is a file."""
    return root / ".git" if (root / ".git").is_dir() else _pointer(root, ".git", root, prefix="gitdir:")


def _pointer(root: Path, relative: str, base: Path, prefix: str = "") -> Path:
    try:
        text = read_regular(root, relative, POINTER_BYTES).decode()
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise SandboxUnavailableError(f"{root / relative} cannot be read: {error}") from error
    return Path(os.path.normpath(base / text.removeprefix(prefix).strip()))


def _require_directory(root: Path, relative: str) -> None:
    try:
        descriptor = open_beneath(root, relative, O_PATH)
    except FileNotFoundError as error:
        raise SandboxUnavailableError(f"{root / relative} was just removed: try again") from error
    try:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
    if not is_directory:
        raise SandboxUnavailableError(f"{root / relative} is not a directory")
