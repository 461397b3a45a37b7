"""Where programs are found: on our own PATH, then on the owner's login shell's.

A service manager starts us with a bare PATH, and what people install for themselves (npm, nvm, Homebrew,
pipx) is on the PATH that their shell's own files set. So we ask the shell, as editors do: interactive and
login, because some installers write into one kind of file and some into the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.domain.errors import CodeButlerError

ANSWER_S = 10.0
MOST_BYTES = 2**20
NOTE = "search-path"
MARK = "codebutler-asks-for-the-path"
# Works in every shell with -ilc: sh, bash, zsh, fish.
QUESTION = f"echo; echo {MARK}; printenv PATH; echo {MARK}"
# The shell's own files may start anything: they get no token. The last variable tells them why they run.
PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
ASKING = {"TERM": "dumb", "CODEBUTLER_ASKS_FOR_PATH": "1"}
# Where `npm install --prefix ~/.local`, pipx and uv put programs, whether or not a shell knows.
OWN_PROGRAMS = Path(".local/bin")


async def search_path(env: Mapping[str, str], shell: Path | None, before: str = "") -> str:
    """The PATH to look for programs in; that of ``env`` first, so that the caller's settings win.

    Without a ``shell`` nobody is asked. ``before``: what was found the last time, for a shell that does not answer.
    """
    own = env.get("PATH") or os.defpath
    home = Path(env.get("HOME") or "~").expanduser()
    if not _is_ours(home):
        return own
    told = "" if shell is None else await ask(shell, env) or before
    return joined(own, told, str(home / OWN_PROGRAMS))


async def supervisors_path(home: Home, env: Mapping[str, str], shell: Path | None) -> str:
    """The supervisor's PATH, which it saves in the home: for the next start, and for `codebutler doctor`."""
    found = await search_path(env, shell, noted(home))
    # An unwritable home must not stop the supervisor for this.
    with home.open() as files, contextlib.suppress(CodeButlerError):
        files.write(NOTE, os.fsencode(found))
    return found


def noted(home: Home) -> str:
    """The PATH of the supervisor that was started last, "" if unknown."""
    with home.open() as files:
        return os.fsdecode(files.read(NOTE) or b"")


def joined(own: str, *further: str) -> str:
    """``own`` unchanged, plus new absolute entries of ``further``. Pure."""
    entries = own.split(os.pathsep)
    for path in further:
        entries += [each for each in path.split(os.pathsep) if each.startswith("/") and each not in entries]
    return os.pathsep.join(dict.fromkeys(entries))


def login_shell() -> Path | None:
    """The shell of this process's user, None if unknown."""
    try:
        named = pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:
        return None
    return Path(named) if named.startswith("/") else None


async def ask(shell: Path, env: Mapping[str, str], *, limit_s: float = ANSWER_S) -> str:
    """The PATH that ``shell`` sets, "" if it does not answer within ``limit_s`` seconds."""
    return await asyncio.to_thread(_ask, shell, env, limit_s)


def _ask(shell: Path, env: Mapping[str, str], limit_s: float) -> str:
    passed = {name: env[name] for name in PASSED_ON if name in env}
    try:
        # In a separate session: an interactive shell would take over our terminal.
        process = subprocess.Popen(
            (str(shell), "-ilc", QUESTION),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "SHELL": str(shell), **passed, **ASKING},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return ""
    assert process.stdout is not None
    # Not to the end of the output: programs that the shell's files leave running may hold it open.
    with process.stdout:
        said = _read(process.stdout.fileno(), time.monotonic() + limit_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, _, told = said.partition(f"\n{MARK}\n".encode())
    path, end, _ = told.partition(f"\n{MARK}\n".encode())
    return os.fsdecode(path) if end else ""


def _read(pipe: int, until_s: float) -> bytes:
    """The output up to the second mark, its end, the time limit or the size limit."""
    said = b""
    while said.count(f"{MARK}\n".encode()) < 2 and len(said) < MOST_BYTES:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))
        if not ready or not (chunk := os.read(pipe, 65536)):
            break
        said += chunk
    return said


def _is_ours(home: Path) -> bool:
    """Nobody else's files may make us run something, least of all as root with another user's HOME."""
    try:
        found = home.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022
