"""The owner's programs that run outside the sandbox, with the owner's credentials: git and gh. They never run in a
repository that agents write to, and never come from one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.git_repo import BOUNDED, BOUNDED_PINS
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import look_up, path_of, trusted_path
from codebutler_worker.forge.remote import ForgeError
from codebutler_worker.programs.process import EndedProgram, run_to_end
from codebutler_worker.sandbox.port import Launch

OUTPUT_BYTES = 8 * 2**20
SCOPES = ("--system", "--global")
"""The configuration of the user we run as."""
TAINTED = "{path}, which your git configuration names, is in the repository, where agents may write: move it elsewhere"
PINS = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.followTags", "false"),
    ("protocol.ext.allow", "never"),
    *BOUNDED_PINS,
)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Host:
    """Programs outside ``repo``. ``told``: the agents' part of the environment; its PATH and proxies apply here
    too."""

    repo: Path
    told: Mapping[str, str]

    def has(self, program: str) -> bool:
        """Whether it is installed."""
        return look_up(program, path_of(self.told), self.repo) is not None

    async def run(
        self, program: str, *words: str, env: Mapping[str, str], cwd: Path, limit_s: float, stdin: bytes = b""
    ) -> EndedProgram | None:
        """Run it to the end in the owner's environment plus ``env``; None if it is not installed. Raises
        ForgeError."""
        found = look_up(program, path_of(self.told), self.repo)
        if found is None:
            return None
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own |= {name: value for name, value in self.told.items() if name in PROXIES}
        own["PATH"] = trusted_path(path_of(self.told), self.repo)
        try:
            launch = Launch((str(found), *words), {**own, **env}, cwd)
            return await run_to_end(launch, stdin=stdin, limit_bytes=OUTPUT_BYTES, limit_s=limit_s)
        except AgentUnavailableError as error:
            raise ForgeError(str(error)) from error

    async def git(self, *words: str, env: Mapping[str, str], cwd: Path, limit_s: float) -> EndedProgram:
        """The same for git. Raises ForgeError if it is not installed."""
        ended = await self.run("git", *words, env=env, cwd=cwd, limit_s=limit_s)
        if ended is None:
            raise ForgeError("git is not installed on this machine: install it")
        return ended

    async def keep_to_owner(self, env: Mapping[str, str], limit_s: float) -> None:
        """Raises ForgeError if git would read configuration from the repository: the owner's may include some."""
        for scope in SCOPES:
            words = ("config", scope, "--includes", "--list", "-z", "--show-origin")
            if (ended := await self.run("git", *words, env=env, cwd=Path("/"), limit_s=limit_s)) is not None:
                settings_in(self.repo, ended.output)


def git_environment(directory: Path, *given: tuple[str, str]) -> dict[str, str]:
    """Variables added to the owner's environment, for git in a repository of ours: with settings that count more than
    the owner's, and nothing that asks for a password, which nobody would see."""
    env = {
        "LC_ALL": "C",
        "GIT_DIR": str(directory),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "SSH_ASKPASS_REQUIRE": "never",
        **BOUNDED,
        "GIT_CONFIG_COUNT": str(len(PINS) + len(given)),
    }
    for at, (key, value) in enumerate((*PINS, *given)):
        env |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return env


def settings_in(repo: Path, output: bytes) -> list[tuple[str, str]]:
    """(key, value) from what `git config -z --show-origin` prints. Raises ForgeError if any of it is from ``repo``."""
    found = []
    parts = os.fsdecode(output).split("\0")[:-1]
    for origin, entry in zip(parts[::2], parts[1::2], strict=False):
        keep_out(repo, origin.removeprefix("file:"))
        key, newline, value = entry.partition("\n")
        found.append((key, value if newline else "true"))
    return found


def keep_out(repo: Path, path: str) -> None:
    """Raises ForgeError if a file that the owner's git would use is in the repository."""
    place, checkout = Path(path).expanduser(), (repo, repo.resolve())
    inside = [
        each for each in (place, place.resolve()) if any(each.is_relative_to(root) for root in checkout)
    ]
    if place.is_absolute() and inside:
        raise ForgeError(TAINTED.format(path=path))
