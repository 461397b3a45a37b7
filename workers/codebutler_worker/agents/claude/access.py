"""How Claude Code reaches its model, and what it holds for that. Pure.

A key of the API stays outside: the CLI gets a token that only our proxy takes (Claude Code 2.1.328 sends to
ANTHROPIC_BASE_URL whatever key it has). A login (a subscription's) it keeps itself and renews; that stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping

from codebutler_worker.egress.service import BEARER, Service, parse_headers
from codebutler_worker.egress.way import HERE

API = "https://api.anthropic.com"
LOGIN_HOSTS = ("api.anthropic.com", "platform.claude.com")
"""What a login needs: the API, and where its token is renewed (Claude Code 2.1.197 and 2.1.328)."""
KEYS: Mapping[str, tuple[str, str]] = {
    "ANTHROPIC_API_KEY": ("x-api-key", ""),
    "ANTHROPIC_AUTH_TOKEN": ("authorization", BEARER),
}
BASE_URL = "ANTHROPIC_BASE_URL"
HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
CREDENTIALS = frozenset({*KEYS, BASE_URL, HEADERS})


def service_of(agent_env: Mapping[str, str], token: str) -> Service | None:
    """The service behind the proxy; None if the CLI speaks with Anthropic by a login of its own."""
    keys = [
        (header, f"{prefix}{agent_env[name]}")
        for name, (header, prefix) in KEYS.items()
        if agent_env.get(name)
    ]
    if not keys and not agent_env.get(BASE_URL):
        return None
    return Service(
        base_url=agent_env.get(BASE_URL) or API,
        token=token,
        keys=tuple(keys),
        extra=parse_headers(agent_env.get(HEADERS, "")),
    )


def environment(agent_env: Mapping[str, str], service: Service | None, port: int) -> dict[str, str]:
    """What the CLI is told of its model, where the proxy is on ``port`` of its loopback; 0 = there is none."""
    if service is None or not port:
        return {name: agent_env[name] for name in sorted(CREDENTIALS) if agent_env.get(name)}
    env = {name: service.token for name in KEYS if agent_env.get(name)}
    env[BASE_URL] = service.inside(port)
    env["NO_PROXY"] = ",".join(filter(None, (agent_env.get("NO_PROXY"), HERE)))
    return env
