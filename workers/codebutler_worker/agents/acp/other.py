"""Any other agent that speaks the protocol, as `commands` of the configuration name it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from codebutler.config.schema import CommandRule
from codebutler.platform.lookup import look_up, missing_rule, path_of
from codebutler_worker.agents.acp.kind import Account
from codebutler_worker.agents.acp.programs import program
from codebutler_worker.agents.backend import TurnRequest
from codebutler_worker.egress.service import ModelService, TokenMeter
from codebutler_worker.egress.way import Way
from codebutler_worker.sandbox.port import Launch, Sandbox, SandboxPolicy

PASSED_ON = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "LC_ALL", "NODE_EXTRA_CA_CERTS", "NO_PROXY", "SSL_CERT_FILE", "TZ"}
)


class Other:
    """The agent behind ``rule``. It asks leave as it likes: what it asks is asked of people."""

    timeout_key = "session.timeoutMinutes"
    mode = ""
    model = ""
    hosts: tuple[str, ...] = ()

    def __init__(
        self, rule: CommandRule, home: Path, agent_env: Mapping[str, str], timeout_minutes: float
    ) -> None:
        self.name = rule.prefix
        self.title = rule.description or rule.prefix
        self.timeout_s = timeout_minutes * 60
        self.login = (
            f"{self.title} is not logged in, or its login has expired: log in by running `{Path(rule.binary).name}` on "
            "the machine as the user who runs CodeButler; then choose Continue."
        )
        self._rule = rule
        self._home = home
        self._agent_env = agent_env
        self._path = path_of(agent_env)

    def service(self, token: str) -> ModelService | None:  # noqa: ARG002 - the port's
        """It keeps its login itself: no key of it is ours."""
        return None

    async def launch(
        self, sandbox: Sandbox, request: TurnRequest, way: Way, service: ModelService | None
    ) -> Launch:
        """How to start it. Raises AgentUnavailableError with what to do, SandboxUnavailableError."""
        del service
        binary = look_up(self._rule.binary, self._path, request.workdir)
        if binary is None:
            raise missing_rule(self._rule.binary, self._home)
        found = program(binary, self._path, request.workdir, self._home)
        passed = {key: value for key, value in self._agent_env.items() if key in PASSED_ON}
        kept = tuple(self._home / path for path in self._rule.home_paths)
        policy = SandboxPolicy(
            workdir=request.workdir,
            home=self._home,
            home_paths=tuple(path for path in kept if path.exists()),
            readable=found.readable,
            env={
                "HOME": str(self._home),
                "PATH": self._path,
                "LANG": "C.UTF-8",
                "TERM": "dumb",
                **passed,
                **way.env,
            },
            network=way.network,
            conversation=request.conversation,
        )
        return sandbox.wrap((*found.argv, *self._rule.args), policy)

    def cost(self, tokens: TokenMeter) -> float | None:  # noqa: ARG002 - the port's
        """Its service's price is its own business."""
        return None

    def recorded_bytes(self, session_id: str, workdir: Path) -> int:  # noqa: ARG002 - the port's
        """It keeps no record that we know."""
        return 0

    def account(
        self,
        session_id: str,  # noqa: ARG002 - the port's
        workdir: Path,  # noqa: ARG002 - the port's
        since_bytes: int,  # noqa: ARG002 - the port's
    ) -> Account | None:
        """It keeps no record that we know."""
        return None
