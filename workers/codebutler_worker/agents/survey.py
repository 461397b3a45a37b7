"""What we know of an agent before any turn: its program, what that needs, its version, its instructions."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from codebutler.config.schema import CommandRule
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.platform.lookup import CLAUDE_CODE, KIMI_CODE, look_up, missing_rule
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from codebutler_worker.sandbox.process import run_to_end

PASSED_ON = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "LC_ALL", "NODE_EXTRA_CA_CERTS", "NO_PROXY", "SSL_CERT_FILE", "TZ"}
)
"""Variables that the operator's environment may pass on to a program; all others are dropped."""


Paths = Iterable[Path]


class Survey(Struct, frozen=True):
    """One agent: ``prefix`` is what people write before the colon; ``ready``, or ``note`` says what to do.

    ``version`` is "" if there is none. ``commands``: its own, which people may write as ``/name``.
    """

    prefix: str
    ready: bool
    note: str = ""
    version: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for every program of one repository. ``home`` is the user's; ``instructions`` teach a program
    that may send messages how to mark them."""

    home: Path
    path: str
    agent_env: Mapping[str, str] = field(default_factory=dict)
    instructions: str = ""

    def env(self, *, term: str = "dumb", passed_on: frozenset[str] = PASSED_ON) -> dict[str, str]:
        """The environment of a program, except for its network access."""
        passed = {key: value for key, value in self.agent_env.items() if key in passed_on}
        own = {"HOME": str(self.home), "PATH": self.path, "LANG": "C.UTF-8", "TERM": term}
        return {**own, **passed}

    def find(self, rule: CommandRule, repo: Path) -> Executable:
        """The rule's program. Raises AgentUnavailableError with what to do."""
        binary = look_up(rule.binary, self.path, repo)
        if binary is None:
            raise missing_rule(rule.binary, self.home)
        return executable(binary, self.path, repo, self.home)

    def policy(
        self,
        turn: TurnRequest,
        access: NetworkAccess,
        env: Mapping[str, str],
        writable: Paths,
        readable: Paths,
    ) -> SandboxPolicy:
        """What a program may see: the checkout, the system, and those of the paths that exist; and its network
        access."""
        return SandboxPolicy(
            workdir=turn.workdir,
            home=self.home,
            home_paths=tuple(path for path in writable if path.exists()),
            readable=tuple(path for path in readable if path.exists()),
            env={**env, **access.env},
            network=access.network,
            conversation=turn.conversation,
        )


async def survey_of(prefix: str, probing: Awaitable[tuple[str, str]], login: str) -> Survey:
    """The survey of an agent, from its version and a note on it; ``login``: how to log in, "" if it is logged in."""
    try:
        version, note = await probing
    except (AgentUnavailableError, SandboxUnavailableError) as error:
        return Survey(prefix, ready=False, note=str(error))
    return Survey(prefix, ready=not login, note=login or note, version=version)


# Programs that are scripts: their interpreter, and the files they need inside the sandbox.

FIRST_LINE_BYTES = 256


class Executable(Struct, frozen=True):
    """How to call it, without arguments, and the paths outside the system that it needs to read."""

    argv: tuple[str, ...]
    readable: tuple[Path, ...]


def executable(binary: Path, path: str, repo: Path, home: Path) -> Executable:
    """How to call ``binary``. If it starts through `env`, we look up the interpreter here, by the same rules as the
    program, and next to it, where nvm and similar tools keep a program's Node.

    Raises AgentUnavailableError if a script's interpreter is missing.
    """
    path = os.pathsep.join((path, str(binary.parent)))
    binary = binary.resolve()
    words = interpreter(first_line(binary))
    readable = [root_of(binary, home)]
    if not words:
        return Executable((str(binary),), tuple(readable))
    if Path(words[0]).name == "env":
        named = [word for word in words[1:] if word != "-S"]
        found = look_up(named[0], path, repo) if named else None
        if found is None:
            wanted = named[0] if named else "interpreter"
            raise AgentUnavailableError(
                f"{binary.name} needs {wanted}, which is not on the supervisor's PATH"
            )
        found = found.resolve()
        return Executable((str(found), *named[1:], str(binary)), (*readable, found))
    runs = Path(words[0])
    # A link into another installation, as in a virtual environment: that one is needed too.
    real = runs.resolve()
    if not real.is_relative_to("/usr") and not home.is_relative_to(real.parent.parent):
        readable.append(real.parent.parent)
    return Executable((str(binary),), tuple(readable))


def first_line(binary: Path) -> str:
    """The script's first line, "" for anything but a readable script."""
    try:
        with binary.open("rb") as file:
            line = file.read(FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    return line.decode(errors="replace") if line.startswith(b"#!") else ""


def interpreter(line: str) -> list[str]:
    """The words after ``#!``, none if it is not a script."""
    try:
        return shlex.split(line.removeprefix("#!")) if line.startswith("#!") else []
    except ValueError:
        return []


def program_root(binary: Path, home: Path) -> Path:
    """What must be readable to run the program: its directory, unless that would expose the user's home."""
    return binary if home.is_relative_to(binary.parent) else binary.parent


def root_of(binary: Path, home: Path) -> Path:
    """The smallest directory that contains the whole program: its Node modules, its virtual environment, or its
    directory."""
    for parent in reversed(binary.parents):
        if parent.name == "node_modules":
            return parent
    for parent in binary.parents:
        if (parent / "pyvenv.cfg").is_file():
            return parent
    return program_root(binary, home)


# Which versions of the programs behind agents work, and which were tested: the data, and how one is judged.

Version = tuple[int, int, int]
SAID_BYTES = 4_000
_VERSION = re.compile(r"(?<![\d.])(\d+)\.(\d+)\.(\d+)")


def version_in(text: str) -> Version | None:
    """The first version in a text."""
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def dotted(version: Version | None) -> str:
    """The version as people write it, "" for none."""
    return ".".join(map(str, version or ()))


class Supported(Struct, frozen=True):
    """A supported program: ``floor`` is the oldest version that works, ``tested`` the newest one tested; ``install`` is
    the line that installs that one. ``probe_s``: how long it may take to print its version."""

    name: str
    floor: Version
    tested: Version
    install: str
    probe_s: float

    def judge(self, version: Version) -> str:
        """A note for the log, empty if all is well. Raises AgentUnavailableError below the floor."""
        if version < self.floor:
            raise AgentUnavailableError(
                f"{self.name} {dotted(version)} is too old: update it with `{self.install}`"
            )
        if version > self.tested:
            return f"{self.name} {dotted(version)} is newer than {dotted(self.tested)}, the newest one tested"
        return ""

    async def ask(self, argv: Sequence[str], env: Mapping[str, str]) -> str:
        """The output of ``argv --version``. Raises AgentUnavailableError if it does not answer."""
        secretless = {key: value for key, value in env.items() if "KEY" not in key}
        launch = Launch((*argv, "--version"), secretless, Path("/"))
        ended = await run_to_end(launch, limit_bytes=SAID_BYTES, limit_s=self.probe_s)
        if ended.code is None:
            raise AgentUnavailableError(
                f"`{Path(argv[-1]).name} --version` does not answer: reinstall {self.name} with `{self.install}`"
            )
        return ended.output.decode(errors="replace")


CLAUDE = Supported(CLAUDE_CODE.title, (2, 1, 197), (2, 1, 328), CLAUDE_CODE.install, probe_s=20.0)
KIMI = Supported(KIMI_CODE.title, (2, 0, 2), (2, 1, 0), KIMI_CODE.install, probe_s=30.0)
NODE_FLOOR: Version = (22, 19, 0)
"""The oldest Node on which Kimi Code starts."""
SUPPORTED: Mapping[str, Supported] = MappingProxyType({"claude": CLAUDE, "kimi": KIMI})
"""By the name of the agent. Any other agent's program has no version of its own that we know."""
