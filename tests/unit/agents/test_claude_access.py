"""What Claude Code holds for its model, and what stays outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from codebutler_worker.agents.claude import command
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.hosts import HostPort
from codebutler_worker.egress.service import ModelService
from codebutler_worker.sandbox.port import ProxySocket

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-real",
    "ANTHROPIC_AUTH_TOKEN": "real",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Team: real",
}


def held(agent_env: dict[str, str], served: ModelService | None, port: int) -> dict[str, str]:
    """What the CLI's environment has for its model."""
    around = command.Installation(
        Path("/home/you"), "/usr/bin", agent_env=agent_env, binary=Path("/usr/bin/claude")
    )
    env = command.policy(around, Path("/srv/repo"), "id", NetworkAccess(port=port), served).env
    return {name: env[name] for name in env if name in {*command.CREDENTIALS, "NO_PROXY"}}


def service(**agent_env: str) -> ModelService:
    found = command.service_of(agent_env)
    assert found is not None
    return replace(found, token="codebutler-1")


def test_no_key_is_inside() -> None:
    served = service(**SECRETS)
    env = held(SECRETS, served, 3128)
    assert env == {
        "ANTHROPIC_API_KEY": "codebutler-1",
        "ANTHROPIC_AUTH_TOKEN": "codebutler-1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:3128",
        "NO_PROXY": "localhost,127.0.0.1,::1",
    }
    assert served.place == HostPort("api.anthropic.com", 443)
    assert served.keys == (("x-api-key", "sk-ant-real"), ("authorization", "Bearer real"))
    assert served.extra == (("X-Team", "real"),)


def test_a_service_of_the_owners_keeps_its_path() -> None:
    given = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://10.0.0.5:4000/llm", "NO_PROXY": ".corp"}
    env = held(given, service(**given), 40000)
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:40000/llm"
    assert env["NO_PROXY"] == ".corp,localhost,127.0.0.1,::1"


def test_a_login_of_its_own_stays_with_it() -> None:
    assert command.service_of({"CLAUDE_CODE_OAUTH_TOKEN": "t"}) is None
    assert held({}, None, 3128) == {}
    passed = service(ANTHROPIC_BASE_URL="https://gateway.example")
    assert passed.keys == ()


def test_without_a_proxy_it_holds_its_keys_itself() -> None:
    assert held({**SECRETS, "OTHER": "x"}, service(**SECRETS), 0) == SECRETS


@pytest.mark.parametrize("network", ["none", "open", ProxySocket(Path("/tmp/d"), 1)])
def test_the_way_is_in_the_policy(network: ProxySocket) -> None:
    around = command.Installation(Path("/home/you"), "/usr/bin", binary=Path("/usr/bin/claude"))
    policy = command.policy(around, Path("/srv/repo"), "id", NetworkAccess(network, env={"HTTPS_PROXY": "p"}))
    assert policy.network == network
    assert policy.env["HTTPS_PROXY"] == "p"
    assert policy.env["PATH"] == "/usr/bin"
