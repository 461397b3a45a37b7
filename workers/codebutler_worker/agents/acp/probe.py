"""Is there a Kimi Code we can work with? Asked once per worker."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec

from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import KIMI_CODE
from codebutler_worker.agents.acp.programs import Program
from codebutler_worker.agents.survey import Known, dotted, version_in
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch

# Which Kimi a program is, by what it says of its version.

FLOOR = (2, 0, 2)
TESTED = (2, 1, 0)
NODE_FLOOR = (22, 19, 0)
PACKAGE = "@moonshot-ai/kimi-code"
INSTALL = KIMI_CODE.install

KNOWN = Known(KIMI_CODE.title, FLOOR, TESTED, INSTALL)


def judge(said: str) -> str:
    """A note for the log, empty if all is well. Raises AgentUnavailableError with the line that installs it.

    PyPI's `kimi-cli`, another program of the same name, says `kimi, version …`; from 1.52 on it does nothing but say
    that it is retired, and exits 0 whatever it is asked.
    """
    if "no longer maintained" in said:
        raise AgentUnavailableError(
            f"`kimi` is the retired kimi-cli, which does nothing any more: uninstall it, then run `{INSTALL}`"
        )
    version = version_in(said)
    if re.search(r"\bkimi, version\b", said):
        told = dotted(version) if version else ""
        raise AgentUnavailableError(
            f"`kimi` is the older kimi-cli {told}, which is kept up no longer: uninstall it, then run `{INSTALL}`"
        )
    if version is None:
        raise AgentUnavailableError(f"`kimi --version` tells no version: install Kimi Code with `{INSTALL}`")
    return KNOWN.judge(version)


def judge_node(said: str) -> None:
    """Raises AgentUnavailableError for a Node in which Kimi Code dies as it starts."""
    version = version_in(said)
    if version is not None and version < NODE_FLOOR:
        raise AgentUnavailableError(
            f"Kimi Code needs Node {dotted(NODE_FLOOR)} or newer, and the supervisor's PATH has {dotted(version)} "
            "first: install a newer Node and put it first in your PATH"
        )


PROBE_S = 30.0
SAID_BYTES = 4_000


class Package(msgspec.Struct):
    """What matters of a ``package.json``."""

    name: str = ""
    version: str = ""


async def probe(program: Program, env: dict[str, str], repo: Path) -> str:
    """Whether it can be used; returns a note for the log. Raises as ``ask_version``."""
    return judge(await ask_version(program, env, repo))


async def ask_version(program: Program, env: dict[str, str], repo: Path) -> str:
    """What the program is, by its package or by its own words to whom ``repo`` belongs.

    Raises AgentUnavailableError if it says nothing, or if its Node is too old, and SandboxUnavailableError if root
    cannot let it run as an ordinary user.
    """
    before = as_owner(repo, *map(Path, program.argv))
    if Path(program.argv[0]).name == "node":
        judge_node(await _said((*before, program.argv[0], "--version"), env))
    # Only to say its version it takes more than a second.
    return packaged(Path(program.argv[-1])) or await _said((*before, *program.argv, "--version"), env)


def packaged(binary: Path) -> str:
    """The version of the npm package that the program lies in, "" if it is another's or none."""
    for directory in binary.parents[:3]:
        try:
            found = msgspec.json.decode((directory / "package.json").read_bytes(), type=Package)
        except (OSError, msgspec.DecodeError):
            continue
        return found.version if found.name == PACKAGE else ""
    return ""


async def _said(argv: tuple[str, ...], env: dict[str, str]) -> str:
    said = b""
    secretless = {key: value for key, value in env.items() if "KEY" not in key}
    async with await AgentProcess.spawn(Launch(argv, secretless, Path("/"))) as process:
        try:
            async with asyncio.timeout(PROBE_S):
                async for line in process.lines():
                    said += line[: SAID_BYTES - len(said)] + b"\n"
        except TimeoutError:
            raise AgentUnavailableError(
                f"`{Path(argv[-2]).name} --version` does not answer: install Kimi Code anew with `{INSTALL}`"
            ) from None
    return said.decode(errors="replace")
