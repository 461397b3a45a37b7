"""Finding a program by its name, and saying what to do where it cannot be found."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.domain.errors import AgentUnavailableError

# A terminal's PATH, as `codebutler doctor` tells it to a worker: what is there need not be on the supervisor's.
TERMINAL_PATH = "CODEBUTLER_TERMINAL_PATH"
# Where installers put programs for one user, below the home, and for a machine.
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


@dataclass(frozen=True, slots=True)
class Agent:
    """A program that is an agent: what people call it, the line that installs it, the key that says where it is."""

    title: str
    install: str
    key: str

    def missing(self, binary: str, home: Path) -> AgentUnavailableError:
        """What to say where it is not found. ``home`` is the user's."""
        return missing(
            self.title,
            binary,
            home,
            install=f"run `{self.install}`",
            configure=f"run `codebutler config set {self.key} {{path}}`",
        )


# The versions that ours is tested with.
CLAUDE_CODE = Agent(
    "Claude Code", "npm install -g --prefix ~/.local @anthropic-ai/claude-code@2.1.328", "claude.binary"
)
KIMI_CODE = Agent("Kimi Code", "npm install -g --prefix ~/.local @moonshot-ai/kimi-code@2.1.0", "kimi.binary")


def path_of(agent_env: Mapping[str, str]) -> str:
    """The PATH in which agents and their tools are looked for."""
    return agent_env.get("PATH") or os.environ.get("PATH", os.defpath)


def look_up(binary: str, path: str, repo: Path | None = None) -> Path | None:
    """The program by name in ``path``, or by its absolute path; None if there is none.

    Relative entries of ``path`` do not count, and none that lies in ``repo``: an agent may have put it there.
    """
    entries = [Path(entry) for entry in path.split(os.pathsep)]
    trusted = [
        str(entry) for entry in entries if entry.is_absolute() and not (repo and entry.is_relative_to(repo))
    ]
    found = shutil.which(binary, path=os.pathsep.join(trusted) or os.devnull)
    return Path(found) if found and Path(found).is_absolute() else None


def missing(title: str, binary: str, home: Path, *, install: str, configure: str) -> AgentUnavailableError:
    """What to say of a program that is not found: it is not installed, or installed where nobody looks.

    ``configure`` makes us take the one at ``{path}``. ``home`` is the user's.
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
    """A PATH of the places where a program may be although our own does not name them, newest versions first."""
    # Where root runs us, the home of agents is another one than ours.
    homes = dict.fromkeys((home, Path(env.get("HOME") or home)))
    own = [
        str(place)
        for each in homes
        for pattern in USUAL
        for place in sorted(each.glob(pattern), reverse=True)
    ]
    return os.pathsep.join((env.get(TERMINAL_PATH, ""), *own, *SHARED))
