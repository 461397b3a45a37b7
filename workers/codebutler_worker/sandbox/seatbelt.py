"""SeatbeltSandbox: macOS's own sandbox, through sandbox-exec(1). Its profile is tested as data; on macOS itself it has
never run, so it is used only where the configuration names it, and tries its walls before anything starts.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from codebutler.errors import SandboxUnavailableError
from codebutler_worker.sandbox.checkout import inspect_checkout
from codebutler_worker.sandbox.layout import Inside
from codebutler_worker.sandbox.named import home_paths, readable, refuse_links
from codebutler_worker.sandbox.none import environment
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from codebutler_worker.sandbox.seatbelt_profile import seatbelt_profile

PROGRAM = Path("/usr/bin/sandbox-exec")
UNTESTED = "seatbelt has been tested as text only, never on macOS: do not rely on it yet"
SELF_TEST_S = 20.0
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
        self._hidden = tuple(path.resolve() for path in hidden if path.is_dir())
        self._readable = readable

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        """See the port. Paths of ``policy`` that do not exist are left out; a symbolic link is refused."""
        checkout = inspect_checkout(policy.workdir)
        for path in (path for path in self._hidden if path.is_relative_to(checkout.root)):
            refuse_links(checkout.root, path)
        inside = Inside(
            home=policy.home.resolve(),
            home_paths=home_paths(policy),
            readable=tuple((path, path.resolve()) for path in readable(argv, policy, self._readable)),
            hidden=self._hidden,
            network=policy.network,
            own_terminal=policy.own_terminal,
        )
        scratch = _scratch(checkout.root)
        profile = seatbelt_profile(inside, checkout, scratch)
        return Launch(
            argv=(str(self._program), "-p", profile, *argv),
            env={**environment(policy), "TMPDIR": str(scratch)},
            cwd=policy.workdir,
        )

    async def self_test(self) -> None:
        """Start a shell inside and let it try the walls."""
        with tempfile.TemporaryDirectory(prefix="codebutler-self-test-") as directory:
            base = Path(directory).resolve()
            workdir, outside = base / "work", base / "outside"
            workdir.mkdir()
            outside.write_text("outside\n", encoding="utf-8")
            env = {"PATH": "/usr/bin:/bin", "OUTSIDE": str(outside)}
            policy = SandboxPolicy(workdir=workdir, home=base / "home", env=env, network="none")
            code, output = await _run(self.wrap(("/bin/sh", "-c", SELF_TEST), policy))
        if code != 0 or output.strip() != "written":
            reason = output.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise SandboxUnavailableError(f"seatbelt does not work here ({reason[0]})")


async def _run(launch: Launch) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=launch.cwd,
        env=launch.env,
    )
    try:
        async with asyncio.timeout(SELF_TEST_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"nothing happened for {SELF_TEST_S:g} s"
    return process.returncode or 0, output.decode(errors="replace")


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
