"""Kimi Code: finding the program, starting it, and reading its own record of a turn (2.1.0, `kimi acp`)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.agent_sessions import kimi_sessions
from codebutler.config.schema import KimiSection, PermissionMode, Price
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import KIMI_CODE, look_up, path_of
from codebutler_worker.agents.acp.agent import AcpAgent, TurnRecord, judge_error
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.agents.native.model import KIMI, PRESETS, TokenCount, cost_usd, price_of
from codebutler_worker.agents.shared_sessions import kept_here
from codebutler_worker.agents.survey import (
    NODE_FLOOR,
    SUPPORTED,
    Executable,
    Surroundings,
    dotted,
    executable,
    version_in,
)
from codebutler_worker.egress.access import HERE, NetworkAccess
from codebutler_worker.egress.service import BEARER, ModelService, TokenMeter
from codebutler_worker.sandbox.destinations import make_directories, regular_file
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy
from codebutler_worker.tools.lenient_json import UnreadableError, parse_message

LOGIN = (
    "Kimi Code is not logged in, or its login has expired: run `kimi login` on the machine as the user who runs "
    "CodeButler, or set kimi.apiKey; then choose Continue."
)
MODES: Mapping[PermissionMode, str] = {
    "bypassPermissions": "yolo",
    "acceptEdits": "default",
    # It has no mode that asks before edits in the working directory.
    "ask": "default",
    "plan": "plan",
}
QUIET = {
    "KIMI_DISABLE_TELEMETRY": "1",
    "KIMI_CODE_NO_AUTO_UPDATE": "1",
    # Nothing should run between turns.
    "KIMI_DISABLE_CRON": "1",
    # Its default of ten retries of a failing model call takes minutes without any output.
    "KIMI_LOOP_MAX_ATTEMPTS_PER_STEP": "4",
}
# The hosts for its login: the model, and the token renewal, in either region (Kimi Code 2.1.0).
LOGIN_HOSTS = ("api.kimi.com", "auth.kimi.com", "api.kimi.ai", "auth.kimi.ai")
READABLE = ("config.toml", "region", "mcp.json", "AGENTS.md", "skills", "agents", "plugins")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")

log = logging.getLogger(__name__)


class Kimi(AcpAgent):
    """Kimi Code in one repository. ``home`` is the user's; ``agent_env`` may hold proxies and the PATH; ``prices`` are
    USD per million tokens, by model."""

    name = "kimi"
    title = KIMI_CODE.title
    timeout_key = "kimi.timeout"
    login = LOGIN
    hosts = LOGIN_HOSTS

    def __init__(
        self,
        settings: KimiSection,
        home: Path,
        agent_env: Mapping[str, str],
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self.timeout_s = settings.timeout * 60
        self.mode = MODES[settings.permission_mode]
        # With a key, the model is set by the environment.
        self.model = "" if settings.api_key else settings.model
        self._prices = prices or {}
        self._settings = settings
        if settings.api_key:
            keys = (("authorization", f"{BEARER}{settings.api_key}"),)
            self.service = ModelService(base_url=settings.base_url, keys=keys)
        self._around = Surroundings(home, path_of(agent_env), agent_env)
        self._program: Executable | None = None
        self._probing = asyncio.Lock()

    async def launch(
        self, sandbox: Sandbox, request: TurnRequest, access: NetworkAccess, service: ModelService | None
    ) -> Launch:
        """How to start it. Raises AgentUnavailableError with what to do, SandboxUnavailableError."""
        async with self._probing:
            if self._program is None:
                found = self.find(request.workdir)
                if note := judge(await ask_version(found, self.environment(), request.workdir)):
                    log.warning(note)
                self._program = found
        make_directories(self._around.home, kimi_sessions(self._code, request.workdir))
        return sandbox.wrap(
            (*self._program.argv, "acp"), self.policy(self._program, request, access, service)
        )

    def policy(
        self, found: Executable, request: TurnRequest, access: NetworkAccess, service: ModelService | None
    ) -> SandboxPolicy:
        """What it may see: this directory's sessions, its login unless it has a key, the user's settings read-only.

        The settings are not writable, because the user's own `kimi` runs the hooks they name outside any sandbox.
        """
        code = self._code
        writable = [kimi_sessions(code, request.workdir)]
        if not self._settings.api_key:
            writable.append(code / "credentials")
        readable = (*(code / name for name in READABLE), *found.readable)
        env = {**self.environment(), **self.model_env(access, service)}
        return self._around.policy(request, access, env, writable, readable)

    def environment(self) -> dict[str, str]:
        """The environment of the CLI and every tool it runs, except for how it reaches its model."""
        return {**QUIET, **self._around.env()}

    def model_env(self, access: NetworkAccess, service: ModelService | None) -> dict[str, str]:
        """How it reaches its model: with a token through our proxy if there is one, else with the key itself."""
        if service is None:
            return {}
        env = {"KIMI_MODEL_NAME": self._named}
        if not access.port:
            key = {"KIMI_MODEL_API_KEY": self._settings.api_key, "KIMI_MODEL_BASE_URL": service.base_url}
            return {**env, **key}
        env |= {"KIMI_MODEL_API_KEY": service.token, "KIMI_MODEL_BASE_URL": service.inside(access.port)}
        return {**env, "NO_PROXY": ",".join(filter(None, (self._around.agent_env.get("NO_PROXY"), HERE)))}

    def kept_session(self, session_id: str, workdir: Path) -> str:
        """The session to resume: that one, or a copy of it if Kimi Code is open in a terminal there. Blocking. Raises
        AgentUnavailableError."""
        return kept_here(self._around.home, workdir, self.name, session_id)

    def record_bytes(self, session_id: str, workdir: Path) -> int:
        """The size of its record of the session. Blocking."""
        return length(self._code, record_of(session_id, workdir))

    def record_since(self, session_id: str, workdir: Path, since_bytes: int) -> TurnRecord | None:
        """What its record says about the turn; None if there is none. Blocking.

        Over the protocol, a failed model call looks like a successful turn without an answer.
        """
        path = record_of(session_id, workdir)
        found = account(self._code, path, since_bytes, self.title, self.login)
        if found is None:
            return None
        used = TokenMeter(input=found.input_tokens, cached=found.cached_tokens, output=found.output_tokens)
        return replace(found, cost_usd=self.cost(used))

    def cost(self, tokens: TokenMeter) -> float | None:
        """A key is billed per token; the cost of a login's subscription is unknown."""
        if not self._settings.api_key:
            return None
        used = TokenCount(input=tokens.input, cached_input=tokens.cached, output=tokens.output)
        return cost_usd(used, price_of(self._prices, self._named))

    @property
    def _named(self) -> str:
        return self._settings.model or PRESETS[KIMI].model

    @property
    def _code(self) -> Path:
        return self._around.home / ".kimi-code"

    def find(self, workdir: Path) -> Executable:
        """The program. Raises AgentUnavailableError with what to do."""
        binary = look_up(self._settings.binary, self._around.path, workdir)
        if binary is None:
            raise KIMI_CODE.missing(self._settings.binary, self._around.home)
        if binary.resolve().is_relative_to(workdir):
            raise AgentUnavailableError(
                f"{binary} is in the repository, where agents may write: install Kimi Code elsewhere"
            )
        return executable(binary, self._around.path, workdir, self._around.home)


def record_of(session_id: str, workdir: Path) -> str:
    """The session's record, below the CLI's directory; "" if the id is not a valid name."""
    if not _SESSION.fullmatch(session_id):
        return ""
    directory = kimi_sessions(Path("/"), workdir).relative_to("/")
    return f"{directory}/{session_id}/agents/main/wire.jsonl"


# Which Kimi a program is, judging by its version output.

PACKAGE = "@moonshot-ai/kimi-code"
INSTALL = KIMI_CODE.install


def judge(said: str) -> str:
    """A note for the log, empty if all is well. Raises AgentUnavailableError with the line that installs it.

    PyPI's `kimi-cli`, a different program of the same name, prints `kimi, version …`; from 1.52 on it only prints that
    it is retired, and always exits with 0.
    """
    if "no longer maintained" in said:
        raise AgentUnavailableError(
            f"`kimi` is the retired kimi-cli, which no longer works: uninstall it, then run `{INSTALL}`"
        )
    version = version_in(said)
    if re.search(r"\bkimi, version\b", said):
        raise AgentUnavailableError(
            f"`kimi` is the older kimi-cli {dotted(version)}, which is no longer maintained: uninstall it, then run "
            f"`{INSTALL}`"
        )
    if version is None:
        raise AgentUnavailableError(f"`kimi --version` prints no version: install Kimi Code with `{INSTALL}`")
    return SUPPORTED["kimi"].judge(version)


def judge_node(said: str) -> None:
    """Raises AgentUnavailableError for a Node version on which Kimi Code crashes at start."""
    version = version_in(said)
    if version is not None and version < NODE_FLOOR:
        raise AgentUnavailableError(
            f"Kimi Code needs Node {dotted(NODE_FLOOR)} or newer, and the supervisor's PATH has {dotted(version)} "
            "first: install a newer Node and put it first in your PATH"
        )


class Package(msgspec.Struct):
    """The fields we need of a ``package.json``."""

    name: str = ""
    version: str = ""


async def ask_version(program: Executable, env: dict[str, str], repo: Path) -> str:
    """The program's version, from its package or by running it as the owner of ``repo``.

    Raises AgentUnavailableError if it prints nothing, or if its Node is too old, and SandboxUnavailableError if root
    cannot run it as an ordinary user.
    """
    before = as_owner(repo, *map(Path, program.argv))
    if Path(program.argv[0]).name == "node":
        judge_node(await SUPPORTED["kimi"].ask((*before, program.argv[0]), env))
    # Printing its version takes it more than a second.
    return packaged(Path(program.argv[-1])) or await SUPPORTED["kimi"].ask((*before, *program.argv), env)


def packaged(binary: Path) -> str:
    """The version of the npm package that the program belongs to, "" if it is another package's or none."""
    for directory in binary.parents[:3]:
        try:
            found = msgspec.json.decode((directory / "package.json").read_bytes(), type=Package)
        except (OSError, msgspec.DecodeError, UnicodeError):
            continue
        return found.version if found.name == PACKAGE else ""
    return ""


# Its own record of a session, ``wire.jsonl``: what a turn used, and whether it failed. The agent may write there, so
# the file is opened step by step, and its content counts only as a hint.

LIMIT_BYTES = 32 * 2**20
R = TypeVar("R")


class WireUsage(Struct, rename="camel"):
    """The token count of one model call."""

    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0


class WireFailure(Struct):
    """Why a turn failed, in Kimi Code's own words; ``code`` is one of its error names."""

    code: str = ""
    message: str = ""


class WireLine(Struct):
    """A line, with the fields we need."""

    type: str = ""
    usage: WireUsage | None = None
    reason: str = ""
    error: WireFailure | None = None


_MARKS = (b'"usage.record"', b'"turn.ended"')


def length(root: Path, relative: str) -> int:
    """The size of the record, 0 if there is none. Blocking."""
    try:
        with regular_file(root, relative) as file:
            return file.seek(0, os.SEEK_END)
    except OSError:
        return 0


def account(root: Path, relative: str, since_bytes: int, title: str, login: str) -> TurnRecord | None:
    """The record after ``since_bytes``; None if nothing can be read. Blocking."""
    try:
        with regular_file(root, relative) as file:
            file.seek(max(since_bytes, file.seek(0, os.SEEK_END) - LIMIT_BYTES))
            data = file.read(LIMIT_BYTES)
    except OSError:
        return None
    return account_of(data, title, login)


def account_of(data: bytes, title: str, login: str) -> TurnRecord:
    """Pure: the record of a turn, line by line; skips lines that it does not understand."""
    into = out = calls = ended = cached = 0
    failed: WireFailure | None = None
    for line in data.split(b"\n"):
        # Most lines hold whole prompts, which do not matter here.
        if not any(mark in line for mark in _MARKS):
            continue
        try:
            said = msgspec.convert(parse_message(line), WireLine)
        except (UnreadableError, msgspec.ValidationError):
            continue
        if said.type == "usage.record" and said.usage is not None:
            used = said.usage
            into += used.input_other + used.input_cache_read + used.input_cache_creation
            cached += used.input_cache_read
            out += used.output
            calls += 1
        elif said.type == "turn.ended":
            ended += 1
            failed = (said.error or WireFailure()) if said.reason == "failed" else None
    verdict = judge_error(0, f"{failed.message} ({failed.code})", title, login) if failed else None
    return TurnRecord(into, out, calls, verdict, ended, cached)
