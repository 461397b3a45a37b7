"""What a working directory consists of, as far as the sandbox is concerned: its git directory and private directory.

The agent has written here before, so anything that git itself would not have laid out this way is refused.
"""

from __future__ import annotations

import os
import stat
from operator import attrgetter
from pathlib import Path

from msgspec import Struct

from codebutler.config.git_repo import Owner
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.destinations import (
    UnsafePathError,
    area_of,
    make_directory,
    make_file,
    read_regular,
    sockets_in,
    status_beneath,
)
from codebutler_worker.sandbox.gitconfig import Pointed
from codebutler_worker.sandbox.person import home_of_agents

# Links in a git directory that the user's git would write through: ``git commit``, for example, writes the message to
# wherever COMMIT_EDITMSG points (and MERGE_MSG may have prepared that message), and its first line to a branch's log.
# Git itself creates no such links. Blocking.

KEPT_ELSEWHERE = ("lfs", "annex")
"""Owners sometimes keep large files elsewhere; git does not write through links in these."""
OTHERS = ("modules", *KEPT_ELSEWHERE)
"""Not part of this repository itself: submodules, for example, are repositories with a configuration of their own."""
SHALLOW = "objects"
"""Files in here are named after their content and never overwritten, so only a linked directory is dangerous."""
MOST = 200_000


def refuse_links(git: Path) -> None:
    """Raises SandboxUnavailableError, which says what to do."""
    left = [git]
    seen = 0
    while left:
        place = left.pop()
        try:
            entries = sorted(os.scandir(place), key=attrgetter("name"))
        except OSError:
            continue  # removed meanwhile, or unreadable for us, and then for git too
        for entry in entries:
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


PRIVATE = ".codebutler"
SHARED: tuple[str, ...] = ("files", "images")
POINTER_BYTES = 4096

Paths = tuple[Path, ...]


class Checkout(Struct, frozen=True, kw_only=True):
    """A working directory, and what programs may see and write in it; every named path exists and is no symbolic link.

    ``pinned`` paths are bound onto themselves so that they cannot be renamed; ``fixed`` ones are read-only; nothing can
    be created or removed in ``closed`` directories, but what is pinned there stays writable. ``private`` is hidden
    except for ``shared``; with an ``index`` (where git's is or will be, None without git) it may hold files that git
    tracks, and is writable. ``shared_git``: git makes its files group-writable (core.sharedRepository). ``pointed`` is
    the part of ``fixed`` that git's configuration refers to. ``sockets`` of programs outside are covered; they may
    disappear at any time.

    Every program in the directory gets the same paths, also while another one starts: otherwise the first could replace
    one with a link between our check and the mount.
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
    def ways(self) -> tuple[Path, ...]:
        """The directories of ``sockets``. They are bound onto themselves, so that no socket can be moved out of
        sight."""
        named = {self.root, *self.pinned, *self.shared, self.private}
        read_only = (*self.fixed, *self.closed)
        return tuple(sorted(_between(self.sockets, (self.root, *self.pinned[:1]), read_only) - named))


def inspect_checkout(workdir: Path, home: Path | None = None, *, filling: bool = False) -> Checkout:
    """Inspect ``workdir`` and create what git leaves out (``hooks``, ``config``), so that it can be made read-only.
    ``home``: of the user who runs git there, None = whoever owns it; ``filling``: see SandboxPolicy.

    Raises SandboxUnavailableError if it cannot be sandboxed.
    """
    if not workdir.is_absolute() or not workdir.is_dir() or workdir.resolve() != workdir:
        raise SandboxUnavailableError(f"{workdir} is not a directory, or its path has a symbolic link in it")
    owner = workdir.stat()
    try:
        pinned, fixed, closed, index = _git(workdir)
        private: Path | None = None
        shared: Paths = ()
        own: Paths = ()
        if pinned or status_beneath(workdir, PRIVATE):
            # Without it the agent could create it in this repository, with its own configuration and store.
            _require_directory(workdir, PRIVATE, create=0o700)
            private = workdir / PRIVATE
            shared = tuple(private / name for name in SHARED if status_beneath(workdir, f"{PRIVATE}/{name}"))
            for path in shared:
                _require_directory(workdir, f"{PRIVATE}/{path.name}")
        if pinned and not filling:
            pointed = Pointed(
                workdir, pinned[0], home or home_of_agents(workdir, Path.home()), workdir / PRIVATE
            )
            own = pointed.read_all(besides=(*fixed, *closed))
        parents = _between(own, (workdir, *pinned[:1]), (*fixed, *closed, *own)) if own else set[Path]()
        sockets = sockets_in((workdir, *pinned[:1]), shared, hidden=workdir / PRIVATE)
    except UnsafePathError as error:
        raise SandboxUnavailableError(
            f"{error.filename} in {workdir}: {error.strerror}; remove it or make it a real directory"
        ) from error
    return Checkout(
        root=workdir,
        owner=Owner.of(owner),
        pinned=(*pinned, *sorted(parents - {workdir, *pinned})),
        fixed=(*fixed, *own),
        closed=closed,
        private=private,
        shared=shared,
        shared_git=any(path.stat().st_mode & stat.S_ISGID for path in pinned[:1]),
        index=index,
        pointed=own,
        sockets=sockets,
    )


def _between(paths: Paths, areas: Paths, read_only: Paths) -> set[Path]:
    """The parents of ``paths`` that can be renamed. Those in a read-only directory cannot, and binding them onto
    themselves would make them writable."""
    return {
        parent
        for path in paths
        for parent in path.parents
        if area_of(parent, areas) and not area_of(parent, read_only)
    }


def _git(root: Path) -> tuple[Paths, Paths, Paths, Path | None]:
    """What to pin, fix and close in the git directory of ``root`` (whatever makes git run programs or points
    elsewhere), and where the index is."""
    found = status_beneath(root, ".git")
    if found is None:
        return (), (), (), None
    is_worktree = stat.S_ISREG(found.st_mode)
    entry = _worktree_entry(root) if is_worktree else root / ".git"
    git = entry.parent.parent if is_worktree else entry
    _require_directory(git.parent, git.name)
    if status_beneath(git, "commondir"):
        # git would read its configuration, and so the programs to run, from the place that this file names.
        raise SandboxUnavailableError(f"{git}/commondir does not belong in a git directory: remove it")
    refuse_links(git)
    pinned, fixed = [git], [git / "hooks", git / "config", git / "config.worktree"]
    if is_worktree:
        fixed.append(root / ".git")
    # What git creates only when needed is created now, so that nobody else can. An empty file changes nothing: git
    # reads ``config.worktree`` only if the configuration says so.
    for name in ("hooks", "worktrees"):
        _require_directory(git, name, create=0o755)
    empty = [(git, "config"), (git, "config.worktree")]
    for tree in sorted((git / "worktrees").iterdir()):
        _require_directory(git, f"worktrees/{tree.name}")
        pinned.append(tree)
        fixed.append(tree / "config.worktree")
        empty.append((tree, "config.worktree"))
        named = ("commondir", "gitdir")
        fixed += [tree / file for file in named if status_beneath(git, f"worktrees/{tree.name}/{file}")]
    for directory, file in empty:
        if status_beneath(directory, file) is None:
            make_file(directory, file)
    return tuple(pinned), tuple(fixed), (git / "worktrees",), entry / "index"


def _worktree_entry(root: Path) -> Path:
    """A worktree's own directory in the git directory it belongs to (two levels up), if that knows the worktree
    (gitrepository-layout(5)).

    The agent can write the ``.git`` file unless it was made read-only, so both directions must agree, and the named
    directory must be in a place where the agent cannot have created it.
    """
    entry = _pointer(root, ".git", root, prefix="gitdir:")
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
    return entry


def _pointer(root: Path, relative: str, base: Path, prefix: str = "") -> Path:
    try:
        text = read_regular(root, relative, POINTER_BYTES).decode()
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise SandboxUnavailableError(f"{root / relative} cannot be read: {error}") from error
    return Path(os.path.normpath(base / text.removeprefix(prefix).strip()))


def _require_directory(root: Path, relative: str, *, create: int | None = None) -> None:
    """``create``: the mode of one that is made if it is missing."""
    if create is not None and status_beneath(root, relative) is None:
        make_directory(root, relative, create)
    if (found := status_beneath(root, relative)) is None:
        raise SandboxUnavailableError(f"{root / relative} was just removed: try again")
    if not stat.S_ISDIR(found.st_mode):
        raise SandboxUnavailableError(f"{root / relative} is not a directory")
