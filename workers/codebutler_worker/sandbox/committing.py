"""Git behind walls: what to do where it may not write, and what it tracks of what is hidden."""

from __future__ import annotations

import re

from codebutler.config.committer import NAMING
from codebutler_worker.sandbox.checkout import PRIVATE, SHARED, Checkout
from codebutler_worker.sandbox.destinations import read_regular

TOLD = (
    "Git in this sandbox: you can commit, branch and merge. The repository's configuration and its list of worktrees "
    "are read-only, so `git config`, `git remote add`, `git branch -u` and `git worktree add` fail: for one command "
    "use `git -c KEY=VALUE`, for a second checkout `git clone . /tmp/NAME`, and ask the owner for a lasting change. "
    "`.codebutler` shows only what git tracks of it, and keeps nothing but what you put into `.codebutler/files`. If "
    f"git asks who you are, do not invent a name: ask the owner to run {NAMING} on the machine that runs CodeButler."
)
"""For agents that a model steers."""
# What the walls' refusals look like: mounts, and seatbelt's rules (errno(3)).
_REFUSED = "(Device or resource busy|Read-only file system|Operation not permitted)"
_HINTS = (
    (
        re.compile("Please tell me who you are|empty ident name"),
        f"Git does not know whose commit this is. On the machine that runs CodeButler, run {NAMING}, then try again.",
    ),
    (
        re.compile(f"could not (write|lock) config file .*: {_REFUSED}"),
        "The sandbox keeps git's configuration read-only. For one command use `git -c KEY=VALUE …`; for a lasting "
        "change run this on the machine that runs CodeButler, outside the sandbox.",
    ),
    (
        re.compile(f"could not create directory of '.*worktrees/.*': {_REFUSED}"),
        "The sandbox does not let git add worktrees. Clone instead (`git clone . /tmp/NAME`), or set `agent.isolation` "
        'to "worktree", which gives each thread its own.',
    ),
)


def hint(output: str) -> str:
    """What to do about a failure of git that the walls cause, or a missing name; "" for all other output. Pure."""
    return next((advice for failure, advice in _HINTS if failure.search(output)), "")


# What git tracks below `.codebutler`, as git has it, in place of what is hidden there.
# Were it missing, git inside would take it for deleted, and `git commit -a` would commit that. So each program begins
# with these files as the index names them, in a directory of its own that lies in memory: git finds nothing changed,
# and can check out, stash and reset them as any other file. They show nothing new (whoever reads git's objects has
# them), and what becomes of them there is nothing outside.

FAILED = f"codebutler: what git tracks in {PRIVATE} could not be shown: do not commit that it is deleted"
LIMIT_S = 10
"""What stands in the place of git's files could be a pipe that nobody writes to."""
LARGEST_BYTES = 64 * 2**20
FULL_NAMES = (2, 3)
"""The versions of the index that name each path in full (gitformat-index(5))."""
_NAMED = " ".join((PRIVATE, *(f"':(exclude){PRIVATE}/{name}'" for name in SHARED)))
_SHOW = f"""
  {{
    git -C "$place" ls-files -z -- {_NAMED} |
      timeout {LIMIT_S} git -C "$place" checkout-index -f -q -z --stdin
  }} </dev/null >/dev/null 2>&1 || echo "{FAILED}" >&2
"""
# Our own .gitignore is hidden, too: without one `git add -A` would take the files that people sent.
_BEGIN = """
places=$1; shift
for place in $places; do{show}
  {{ [ -e "$place/{private}/.gitignore" ] || echo '*' > "$place/{private}/.gitignore"; }} 2>/dev/null
done
exec "$@"
"""


def with_tracked(argv: tuple[str, ...], checkout: Checkout, places: str = ".") -> tuple[str, ...]:
    """``argv``, begun in ``checkout`` once the tracked files are there. ``places``: where it shows, with a space
    between them."""
    if not checkout.hides_tracked:
        return argv
    script = _BEGIN.format(show=_SHOW if _may_track(checkout) else "", private=PRIVATE)
    return ("/bin/sh", "-c", script.strip(), "codebutler", places, *argv)


def _may_track(checkout: Checkout) -> bool:
    assert checkout.index is not None
    try:
        return names_private(read_regular(checkout.index.parent, checkout.index.name, LARGEST_BYTES))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def names_private(index: bytes) -> bool:
    """Whether git's index may name a file below `.codebutler`; True where only git can tell. Pure."""
    if not index:
        return False
    whole = int.from_bytes(index[4:8], "big") in FULL_NAMES and b"link" not in index
    return not whole or f"{PRIVATE}/".encode() in index
