"""A repository's checks: the configured ones, otherwise those its files suggest. Reads files, runs nothing."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from codebutler.config.schema import Check, ChecksSection
from codebutler_worker.sandbox.destinations import read_regular, status_beneath

LIMIT_BYTES = 2**20
_TARGET = re.compile(r"^(check|test)\s*:(?![:=])", re.MULTILINE)
NPM_PLACEHOLDER = "no test specified"


def checks_of(section: ChecksSection, repo: Path) -> tuple[Check, ...]:
    """The checks; none if nothing configures or suggests any. Suggested checks run only on request."""
    command = section.command.strip()
    named = (*((Check(name=command, command=command),) if command else ()), *section.commands)
    if named:
        return named
    found = next((found for look in _LOOKS if (found := look(repo))), None)
    return (Check(name=found, command=found, when="ask"),) if found else ()


def script_of(checks: Sequence[Check]) -> str:
    """All of them as one shell command, which fails if any of them does. Pure."""
    if len(checks) == 1:
        return checks[0].command
    lines = ["failed="]
    for check in checks:
        lines += [f"echo {shlex.quote(f'== {check.name}')}", "(", check.command, ") || failed=1"]
    return "\n".join([*lines, '[ -z "$failed" ]'])


def _make(repo: Path) -> str | None:
    text = next((text for name in ("GNUmakefile", "makefile", "Makefile") if (text := _read(repo, name))), "")
    targets = set(_TARGET.findall(text))
    return next((f"make {target}" for target in ("check", "test") if target in targets), None)


def _npm(repo: Path) -> str | None:
    try:
        scripts = json.loads(_read(repo, "package.json") or "{}").get("scripts", {})
        test = scripts.get("test", "")
    except (ValueError, AttributeError, RecursionError):
        return None
    return "npm test" if isinstance(test, str) and test and NPM_PLACEHOLDER not in test else None


def _pytest(repo: Path) -> str | None:
    configured = "[tool.pytest" in _read(repo, "pyproject.toml") or "[tool:pytest]" in _read(
        repo, "setup.cfg"
    )
    if not (configured or _is_there(repo, "pytest.ini") or _is_there(repo, "tests/conftest.py")):
        return None
    own = ".venv/bin/python"
    return f"{own if _is_there(repo, '.venv/bin') else 'python3'} -m pytest"


def _cargo(repo: Path) -> str | None:
    return "cargo test" if _is_there(repo, "Cargo.toml") else None


def _go(repo: Path) -> str | None:
    return "go test ./..." if _is_there(repo, "go.mod") else None


_LOOKS: tuple[Callable[[Path], str | None], ...] = (_make, _npm, _pytest, _cargo, _go)


def _read(repo: Path, name: str) -> str:
    """The file's text; "" if it is missing, or not a regular file of a reasonable size."""
    try:
        return read_regular(repo, name, LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _is_there(repo: Path, name: str) -> bool:
    try:
        return status_beneath(repo, name) is not None
    except OSError:
        return False
