"""Hooks: a request from outside that becomes a prompt. Pure.

The body is somebody else's text. It fills places of a template that the owner wrote, and never a command.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from codebutler.domain.errors import ConfigError
from codebutler.text.requests import is_plain

MAX_VALUE_CHARS = 4000
MIN_SECRET_CHARS = 16
_PLACE = re.compile(r"\{\{\s*body((?:\.[A-Za-z0-9_-]+)*)\s*\}\}")
_AGENT = re.compile(r"[a-z][a-z0-9_-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class HookSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One entry of ``hooks`` in the home's file. ``secret_env`` names the variable that holds the secret."""

    name: str
    secret_env: str
    prompt: str
    agent: str = ""
    repo: str = ""
    channel: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook that can be called."""

    name: str
    repo: str
    channel: str
    template: str
    label: str
    secret: bytes
    agent: str = ""

    def admits(self, body: bytes, headers: Mapping[str, str]) -> bool:
        """Whether the caller knows the secret: ``X-Hub-Signature-256`` over the body (as GitHub signs), or
        ``Authorization: Bearer``. Header names are in lower case."""
        signature = headers.get("x-hub-signature-256", "")
        if signature:
            expected = hmac.new(self.secret, body, hashlib.sha256).hexdigest()
            return hmac.compare_digest(signature.encode(), f"sha256={expected}".encode())
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.secret)

    def key(self, headers: Mapping[str, str]) -> str:
        """What tells an admitted call from others; "" if nothing does.

        Of a signed one that is its signature, so whoever has caught it cannot have it carried out again, whatever
        else the copy says. Who has the secret itself may name each call.
        """
        if signature := headers.get("x-hub-signature-256", ""):
            return f"signed:{signature}"
        named = headers.get("x-github-delivery") or headers.get("idempotency-key")
        return f"named:{named}" if named else ""

    def text(self, body: Any) -> str:
        """The prompt for a body (JSON, or the raw text). Nothing that comes in it becomes a word of ours, or names an
        agent or a program."""
        filled = _PLACE.sub(lambda match: _value(body, match[1].split(".")[1:]), self.template)
        if self.agent:
            return f"{self.agent}: {filled}"
        return filled if is_plain(filled) else f"The hook {self.name} says:\n{filled}"


def hook_of(spec: HookSpec, where: str, env: Mapping[str, str], place: tuple[str, str]) -> Hook:
    """``place``: (repository, channel). Raises ConfigError with what is missing."""
    if not _NAME.fullmatch(spec.name):
        raise ConfigError(f"{where}.name: {spec.name!r}: use letters, digits, '.', '_' and '-'")
    if spec.agent and not _AGENT.fullmatch(spec.agent):
        raise ConfigError(
            f"{where}.agent ({spec.name}): {spec.agent!r}: use the word that people write before the colon"
        )
    secret = env.get(spec.secret_env, "")
    if len(secret) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"{where} ({spec.name}): set {spec.secret_env or 'secretEnv'} in the home's .env to a secret of at "
            f"least {MIN_SECRET_CHARS} characters"
        )
    if not spec.prompt.strip():
        raise ConfigError(
            f"{where} ({spec.name}): give it a prompt; {{{{ body.some.field }}}} fills in what came"
        )
    return Hook(
        name=spec.name,
        repo=place[0],
        channel=place[1],
        template=spec.prompt.strip(),
        label=spec.label.strip() or spec.name,
        secret=secret.encode(),
        agent=spec.agent,
    )


def _value(body: Any, path: list[str]) -> str:
    for key in path:
        if isinstance(body, dict):
            body = body.get(key, "")
        elif isinstance(body, list) and key.isdigit() and int(key) < len(body):
            body = body[int(key)]
        else:
            return ""
    text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}… (cut)"
