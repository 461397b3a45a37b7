"""Find a program by its name, and say what to do if it is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codebutler.domain.errors import AgentUnavailableError

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
