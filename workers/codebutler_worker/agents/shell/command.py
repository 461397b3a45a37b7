"""How a program is started and what is typed into it. Pure but for looking the program up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codebutler.config.schema import CommandRule
from codebutler_worker.egress.way import Way
from codebutler_worker.programs.program import UNATTENDED
from codebutler_worker.sandbox.port import SandboxPolicy

# What the operator's surroundings may pass on to a program; nothing else of them does.
PASSED_ON = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "LC_ALL", "NODE_EXTRA_CA_CERTS", "NO_PROXY", "SSL_CERT_FILE", "TZ"}
)
# A message that is one of these alone is that key.
KEYS: Mapping[str, bytes] = {
    "^M": b"\r", "^[": b"\x1b", "^I": b"\t", "↑": b"\x1b[A", "↓": b"\x1b[B", "→": b"\x1b[C", "←": b"\x1b[D",
    **{f"^{letter}": bytes([ord(letter) - 64]) for letter in "ABCDEFGHJKLNOPQRSTUVWXYZ\\"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stays the same for every program of one repository. ``home`` is the user's, of which a program sees
    nothing; ``instructions`` teach one that may send messages how to mark them."""

    home: Path
    path: str
    agent_env: Mapping[str, str] = field(default_factory=dict)
    instructions: str = ""


def argv(rule: CommandRule, binary: Path, text: str) -> tuple[str, ...]:
    """The command line; a one-shot's text is its last argument."""
    return (str(binary), *rule.args, *((text,) if rule.mode == "one-shot" else ()))


def policy(around: Surroundings, rule: CommandRule, binary: Path, workdir: Path, way: Way) -> SandboxPolicy:
    """What the program may see: the checkout, the system, itself; and its way to the network."""
    passed = {key: value for key, value in around.agent_env.items() if key in PASSED_ON}
    env = {
        "PATH": around.path,
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        **(UNATTENDED if rule.mode == "one-shot" else {}),
        **passed,
        **way.env,
    }
    return SandboxPolicy(
        workdir=workdir,
        home=around.home,
        readable=(binary,),
        env=env,
        network=way.network,
        own_terminal=True,
    )


def is_key(text: str) -> bool:
    """Whether a message is one key and no words."""
    return text.strip() in KEYS


def keys(text: str) -> bytes:
    """What a person's message types: its lines, each with Enter, or the one key it names (``^D``, ``↑``)."""
    named = KEYS.get(text.strip())
    if named is not None:
        return named
    lines = text.replace("\r\n", "\n").split("\n")
    return "".join(f"{line}\r" for line in lines).encode(errors="replace")
