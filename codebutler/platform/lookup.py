"""Finds programs: in which PATH, by their name, and what to do if one is missing.

A service manager starts us with a bare PATH, and what people install for themselves (npm, nvm, Homebrew, pipx) is on
the PATH that their shell's own files set. So we ask the shell, as editors do: interactive and login, because some
installers write into one kind of file and some into the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codebutler.domain.errors import AgentUnavailableError, CodeButlerError
from codebutler.platform.files import PrivateDir

# A terminal's PATH, passed by `codebutler doctor` to a worker: the supervisor's PATH may lack what is there.
TERMINAL_PATH = "CODEBUTLER_TERMINAL_PATH"
# Where installers put programs, for one user below the home and for the whole machine.
USUAL = (
    ".local/bin",
    ".npm-global/bin",
    ".npm-packages/bin",
    ".nvm/versions/node/*/bin",
    ".local/share/fnm/node-versions/*/installation/bin",
    ".local/share/mise/shims",
    ".asdf/shims",
    ".volta/bin",
    ".bun/bin",
    ".cargo/bin",
    "go/bin",
)
SHARED = ("/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin")
SHELL_LIMIT_S = 10.0
MAX_SHELL_BYTES = 2**20
PATH_NOTE = "search-path"
MARK = "codebutler-asks-for-the-path"
# Works in every shell with -ilc: sh, bash, zsh, fish.
QUESTION = f"echo; echo {MARK}; printenv PATH; echo {MARK}"
# The shell's own files may start anything: they get no token. The last variable tells them why they run.
PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
SHELL_VARIABLES = {"TERM": "dumb", "CODEBUTLER_ASKS_FOR_PATH": "1"}
# Where `npm install --prefix ~/.local`, pipx and uv put programs, whether or not a shell knows.
OWN_PROGRAMS = Path(".local/bin")


class Agent(Struct, frozen=True):
    """An agent's program: its name for people, the line that installs it, the key that sets its path."""

    title: str
    install: str
    key: str

    def missing(self, binary: str, home: Path) -> AgentUnavailableError:
        """The error if it is not found. ``home`` is the user's."""
        return missing(
            self.title,
            binary,
            home,
            install=f"run `{self.install}`",
            configure=f"run `codebutler config set {self.key} {{path}}`",
        )


# The versions that we test with.
CLAUDE_CODE = Agent(
    "Claude Code", "npm install -g --prefix ~/.local @anthropic-ai/claude-code@2.1.328", "claude.binary"
)
KIMI_CODE = Agent("Kimi Code", "npm install -g --prefix ~/.local @moonshot-ai/kimi-code@2.1.0", "kimi.binary")


def path_of(agent_env: Mapping[str, str]) -> str:
    """The PATH in which agents and their tools are looked up."""
    return agent_env.get("PATH") or os.environ.get("PATH", os.defpath)


def look_up(binary: str, path: str, repo: Path | None = None) -> Path | None:
    """The program by name in ``path``, or by its absolute path; None if there is none.

    Ignores relative entries of ``path``, and entries in ``repo``: an agent may have put the program there.
    """
    found = shutil.which(binary, path=trusted_path(path, repo))
    return Path(found) if found and Path(found).is_absolute() else None


def trusted_path(path: str, repo: Path | None = None) -> str:
    """The entries of ``path`` that ``look_up`` uses, for a program that starts others by name."""
    entries = [Path(entry) for entry in path.split(os.pathsep)]
    trusted = [
        str(entry) for entry in entries if entry.is_absolute() and not (repo and entry.is_relative_to(repo))
    ]
    return os.pathsep.join(trusted) or os.devnull


def missing(title: str, binary: str, home: Path, *, install: str, configure: str) -> AgentUnavailableError:
    """The error for a missing program: it is not installed, or installed outside the PATH.

    ``configure`` says how to use the one at ``{path}``. ``home`` is the user's.
    """
    if "/" in binary:
        return AgentUnavailableError(f"{title} is not installed at {binary}: {install}")
    found = look_up(binary, _elsewhere(home, os.environ))
    if found is None:
        return AgentUnavailableError(f"{title} is not installed: {install}")
    return AgentUnavailableError(
        f"{title} is not on the supervisor's PATH, but installed at {found}: {configure.format(path=found)}"
    )


def missing_rule(binary: str, home: Path) -> AgentUnavailableError:
    """The same for a program of the configuration's ``commands``."""
    return missing(
        binary,
        binary,
        home,
        install="install it, or give its absolute path in `commands`",
        configure='write "binary": "{path}" in `commands`',
    )


def _elsewhere(home: Path, env: Mapping[str, str]) -> str:
    """A PATH of the usual places that our own lacks, newest versions first."""
    # If root runs us, agents have a different home.
    homes = dict.fromkeys((home, Path(env.get("HOME") or home)))
    own = [
        str(place)
        for each in homes
        for pattern in USUAL
        for place in sorted(each.glob(pattern), reverse=True)
    ]
    return os.pathsep.join((env.get(TERMINAL_PATH, ""), *own, *SHARED))


async def find_search_path(env: Mapping[str, str], shell: Path | None, before: str = "") -> str:
    """The PATH to look for programs in; that of ``env`` first, so that the caller's settings win.

    Without a ``shell`` nobody is asked. ``before``: what was found the last time, for a shell that does not answer.
    """
    own = env.get("PATH") or os.defpath
    home = Path(env.get("HOME") or "~").expanduser()
    if not _is_ours(home):
        return own
    shell_path = "" if shell is None else await ask_shell(shell, env) or before
    return join_paths(own, shell_path, str(home / OWN_PROGRAMS))


async def save_search_path(home: Path, env: Mapping[str, str], shell: Path | None) -> str:
    """The supervisor's PATH, which it saves in the home: for the next start, and for `codebutler doctor`."""
    found = await find_search_path(env, shell, saved_path(home))
    # An unwritable home must not stop the supervisor for this.
    with _notes(home) as files, contextlib.suppress(CodeButlerError):
        files.write(PATH_NOTE, os.fsencode(found))
    return found


def saved_path(home: Path) -> str:
    """The PATH of the supervisor that was started last, "" if unknown."""
    with _notes(home) as files:
        return os.fsdecode(files.read(PATH_NOTE) or b"")


def _notes(home: Path) -> PrivateDir:
    return PrivateDir(home, follow_links=True, create=True)


def join_paths(own: str, *further: str) -> str:
    """``own`` unchanged, plus new absolute entries of ``further``. Pure."""
    entries = own.split(os.pathsep)
    for path in further:
        entries += [each for each in path.split(os.pathsep) if each.startswith("/") and each not in entries]
    return os.pathsep.join(dict.fromkeys(entries))


def login_shell() -> Path | None:
    """The shell of this process's user, None if unknown."""
    try:
        shell = pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:
        return None
    return Path(shell) if shell.startswith("/") else None


async def ask_shell(shell: Path, env: Mapping[str, str], *, limit_s: float = SHELL_LIMIT_S) -> str:
    """The PATH that ``shell`` sets, "" if it does not answer within ``limit_s`` seconds."""
    return await asyncio.to_thread(_run_shell, shell, env, limit_s)


def _run_shell(shell: Path, env: Mapping[str, str], limit_s: float) -> str:
    passed = {name: env[name] for name in PASSED_ON if name in env}
    try:
        # In a separate session: an interactive shell would take over our terminal.
        process = subprocess.Popen(
            (str(shell), "-ilc", QUESTION),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "SHELL": str(shell), **passed, **SHELL_VARIABLES},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return ""
    assert process.stdout is not None
    # Not to the end of the output: programs that the shell's files leave running may hold it open.
    with process.stdout:
        output = _read(process.stdout.fileno(), time.monotonic() + limit_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _, _, answer = output.partition(f"\n{MARK}\n".encode())
    path, end, _ = answer.partition(f"\n{MARK}\n".encode())
    return os.fsdecode(path) if end else ""


def _read(pipe: int, until_s: float) -> bytes:
    """The output up to the second mark, its end, the time limit or the size limit."""
    output = b""
    while output.count(f"{MARK}\n".encode()) < 2 and len(output) < MAX_SHELL_BYTES:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))
        if not ready or not (chunk := os.read(pipe, 65536)):
            break
        output += chunk
    return output


def _is_ours(home: Path) -> bool:
    """Nobody else's files may make us run something, least of all as root with another user's HOME."""
    try:
        found = home.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022
