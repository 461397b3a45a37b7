"""SeatbeltSandbox: macOS's own sandbox, through sandbox-exec(1). Its profile is tested as data; on macOS itself it has
never run, so it is used only where the configuration names it, and tries its walls before anything starts.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox import trial
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.none import environment
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from codebutler_worker.sandbox.seatbelt_profile import seatbelt_profile
from codebutler_worker.sandbox.view import View

PROGRAM = Path("/usr/bin/sandbox-exec")
UNTESTED = "seatbelt has been tested as text only, never on macOS: do not rely on it yet"
SELF_TEST = r"""
[ "$(id -u)" != 0 ] || { echo "is root inside"; exit 1; }
cat "$OUTSIDE" 2>/dev/null && { echo "reads files outside"; exit 1; }
(: > "$OUTSIDE") 2>/dev/null && { echo "writes files outside"; exit 1; }
(: > "$TMPDIR/self-test") || { echo "cannot write in its own directory for temporary files"; exit 1; }
echo written > here && cat here
"""


class SeatbeltSandbox:
    """``hidden`` are directories no agent may see, ``readable`` those outside the repository that each may read.

    Raises SandboxUnavailableError off macOS, and for root."""

    name = "seatbelt"

    def __init__(
        self,
        hidden: tuple[Path, ...] = (),
        program: Path = PROGRAM,
        uid: int | None = None,
        readable: tuple[Path, ...] = (),
    ) -> None:
        if not os.access(program, os.X_OK):
            raise SandboxUnavailableError(f"seatbelt is a part of macOS: there is no {program} here")
        if (os.geteuid() if uid is None else uid) == 0:
            raise SandboxUnavailableError("seatbelt cannot make root an ordinary user: run CodeButler as one")
        self._program = program
        self._view = View.of(hidden, readable)

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """See the port. Paths of ``policy`` that do not exist are left out; a symbolic link is refused."""
        checkout = inspect_checkout(policy.workdir, filling=policy.filling)
        scratch = _scratch(checkout.root)
        profile = seatbelt_profile(self._view.inside(argv, policy, checkout), checkout, scratch)
        return Launch(
            argv=(str(self._program), "-p", profile, *argv),
            env={**environment(policy), "TMPDIR": str(scratch)},
            cwd=policy.workdir,
        )

    async def self_test(self) -> None:
        """Start a shell inside and let it try the walls."""
        with trial.ground() as ground:
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(ground.outside)}
            policy = SandboxPolicy(workdir=ground.workdir, home=ground.home, env=env, network="none")
            why = await trial.failure(self.wrap(("/bin/sh", "-c", SELF_TEST), policy))
        if why:
            raise SandboxUnavailableError(f"seatbelt does not work here ({why})")


def _scratch(root: Path) -> Path:
    """A directory of our own for the temporary files of what runs in ``root``, the same each time.

    Raises SandboxUnavailableError if somebody else was there first.
    """
    name = f"codebutler-{os.geteuid()}-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir()).resolve() / name
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise SandboxUnavailableError(f"{path} is not ours: remove it")
    return path
