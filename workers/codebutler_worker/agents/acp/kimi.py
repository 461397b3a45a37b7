"""Kimi Code: how it is found, started and believed (Kimi Code 2.1.0, `kimi acp`)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from codebutler.config.schema import KimiSection, PermissionMode, Price
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.lookup import KIMI_CODE, look_up, path_of
from codebutler_worker.agents.acp import ledger
from codebutler_worker.agents.acp.kind import Account
from codebutler_worker.agents.acp.probe import probe
from codebutler_worker.agents.acp.programs import Program, program
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.agents.native.model import Tokens
from codebutler_worker.agents.native.presets import KIMI, PRESETS, cost_usd, price_of
from codebutler_worker.egress.service import BEARER, ModelService, TokenMeter
from codebutler_worker.egress.way import HERE, Way
from codebutler_worker.sandbox.person import make_directories
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy

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
    # Nothing works between turns.
    "KIMI_DISABLE_CRON": "1",
    # Its own ten tries of a failing model call take minutes, in which it says nothing.
    "KIMI_LOOP_MAX_ATTEMPTS_PER_STEP": "4",
}
PASSED_ON = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "LC_ALL", "NODE_EXTRA_CA_CERTS", "NO_PROXY", "SSL_CERT_FILE", "TZ"}
)
# Its login's own: the model, and where a token is renewed, in either region (Kimi Code 2.1.0).
LOGIN_HOSTS = ("api.kimi.com", "auth.kimi.com", "api.kimi.ai", "auth.kimi.ai")
READABLE = ("config.toml", "region", "mcp.json", "AGENTS.md", "skills", "agents", "plugins")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,100}")

log = logging.getLogger(__name__)


class Kimi:
    """Kimi Code in one repository. ``home`` is the user's; ``agent_env`` may hold proxies and the PATH; ``prices`` are
    USD for a million tokens, by model."""

    name = "kimi"
    title = KIMI_CODE.title
    timeout_key = "kimi.timeout"
    login = LOGIN
    hosts: tuple[str, ...] = LOGIN_HOSTS

    def __init__(
        self,
        settings: KimiSection,
        home: Path,
        agent_env: Mapping[str, str],
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self.timeout_s = settings.timeout * 60
        self.mode = MODES[settings.permission_mode]
        # With a key the model is told by the environment.
        self.model = "" if settings.api_key else settings.model
        self._prices = prices or {}
        self._settings = settings
        self._home = home
        self._agent_env = agent_env
        self._path = path_of(agent_env)
        self._program: Program | None = None
        self._probing = asyncio.Lock()

    def service(self, token: str) -> ModelService | None:
        """The service that the key is for; None where the CLI has a login of its own."""
        if not self._settings.api_key:
            return None
        keys = (("authorization", f"{BEARER}{self._settings.api_key}"),)
        return ModelService(base_url=self._settings.base_url, token=token, keys=keys)

    async def launch(
        self, sandbox: Sandbox, request: TurnRequest, way: Way, service: ModelService | None
    ) -> Launch:
        """How to start it. Raises AgentUnavailableError with what to do, SandboxUnavailableError."""
        async with self._probing:
            if self._program is None:
                self._program = await self._probed(request.workdir)
        make_directories(self._home, sessions_of(self._code, request.workdir))
        return sandbox.wrap((*self._program.argv, "acp"), self.policy(self._program, request, way, service))

    def policy(
        self, found: Program, request: TurnRequest, way: Way, service: ModelService | None
    ) -> SandboxPolicy:
        """What it may see: this directory's sessions, its login unless it has a key, the user's settings read-only.

        The settings are not writable, because the user's own `kimi` runs the hooks they name outside any sandbox.
        """
        code = self._code
        writable = [sessions_of(code, request.workdir)]
        if not self._settings.api_key:
            writable.append(code / "credentials")
        readable = (*(code / name for name in READABLE), *found.readable)
        return SandboxPolicy(
            workdir=request.workdir,
            home=self._home,
            home_paths=tuple(path for path in writable if path.exists()),
            readable=tuple(path for path in readable if path.exists()),
            env={**self.environment(), **self.model_env(way, service), **way.env},
            network=way.network,
            conversation=request.conversation,
        )

    def environment(self) -> dict[str, str]:
        """The environment of the CLI and of every tool it runs, but for how it reaches its model."""
        passed = {key: value for key, value in self._agent_env.items() if key in PASSED_ON}
        home = {"HOME": str(self._home), "PATH": self._path, "LANG": "C.UTF-8", "TERM": "dumb"}
        return {**home, **QUIET, **passed}

    def model_env(self, way: Way, service: ModelService | None) -> dict[str, str]:
        """How it reaches its model: through our proxy with a token, where there is one, else with the key itself."""
        if service is None:
            return {}
        env = {"KIMI_MODEL_NAME": self._named}
        if not way.port:
            key = {"KIMI_MODEL_API_KEY": self._settings.api_key, "KIMI_MODEL_BASE_URL": service.base_url}
            return {**env, **key}
        env |= {"KIMI_MODEL_API_KEY": service.token, "KIMI_MODEL_BASE_URL": service.inside(way.port)}
        return {**env, "NO_PROXY": ",".join(filter(None, (self._agent_env.get("NO_PROXY"), HERE)))}

    def recorded_bytes(self, session_id: str, workdir: Path) -> int:
        """How long its record of the session is. Blocking."""
        return ledger.length(self._code, record_of(session_id, workdir))

    def account(self, session_id: str, workdir: Path, since_bytes: int) -> Account | None:
        """What its record says of the turn; None if there is none. Blocking.

        A failed model call is, over the protocol, a turn that ended well without a word.
        """
        path = record_of(session_id, workdir)
        found = ledger.account(self._code, path, since_bytes, self.title, self.login)
        if found is None:
            return None
        used = TokenMeter(input=found.input_tokens, cached=found.cached_tokens, output=found.output_tokens)
        return replace(found, cost_usd=self.cost(used))

    def cost(self, tokens: TokenMeter) -> float | None:
        """A key is paid by the token; of what a login's subscription costs nothing is known."""
        if not self._settings.api_key:
            return None
        used = Tokens(input=tokens.input, cached_input=tokens.cached, output=tokens.output)
        return cost_usd(used, price_of(self._prices, self._named))

    @property
    def _named(self) -> str:
        return self._settings.model or PRESETS[KIMI].model

    @property
    def _code(self) -> Path:
        return self._home / ".kimi-code"

    def find(self, workdir: Path) -> Program:
        """The program. Raises AgentUnavailableError with what to do."""
        binary = look_up(self._settings.binary, self._path, workdir)
        if binary is None:
            raise KIMI_CODE.missing(self._settings.binary, self._home)
        if binary.resolve().is_relative_to(workdir):
            raise AgentUnavailableError(
                f"{binary} lies in the repository, where agents may write: install Kimi Code elsewhere"
            )
        return program(binary, self._path, workdir, self._home)

    async def _probed(self, workdir: Path) -> Program:
        found = self.find(workdir)
        if note := await probe(found, self.environment(), workdir):
            log.warning(note)
        return found


def sessions_of(code: Path, workdir: Path) -> Path:
    """Where the CLI keeps the sessions begun in ``workdir``: a slug of its name, and the beginning of its SHA-256."""
    real = os.path.realpath(workdir)
    slug = re.sub(r"[^a-z0-9._-]+", "-", Path(real).name.lower()).strip("-")[:40].strip("-")
    slug = "workspace" if slug in ("", ".", "..") else slug
    return code / "sessions" / f"wd_{slug}_{hashlib.sha256(real.encode()).hexdigest()[:12]}"


def record_of(session_id: str, workdir: Path) -> str:
    """The session's record, below the CLI's directory; "" for what is no name for one."""
    if not _SESSION.fullmatch(session_id):
        return ""
    directory = sessions_of(Path("/"), workdir).relative_to("/")
    return f"{directory}/{session_id}/agents/main/wire.jsonl"
